"""What gzip files hold, by the digest of their packed bytes: to unpack is most of what a look at raw files costs.

The content is a pure function of the packed bytes. These are read and hashed every time, so another byte finds nothing,
whatever size and time the file has; what is found is the digest of a content that was unpacked before.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from datasets.errors import ArtifactDamaged
from datasets.readers.raw import GZIP_MAGIC
from tasks.durable import read_json, sha256_file, write_json
from tasks.progress import LOG

NAME = "unpacked.json"

Content = tuple[str, int]
"""SHA-256 and size of an uncompressed content."""


class Unpacked:
    """The gzip files of a dataset that were unpacked before.

    Args:
        path: Of the file that keeps them; it has no say in what they hold.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = self._read()
        self._used: dict[str, Content] = {}

    def packed(self, source: Path) -> str | None:
        """SHA-256 of a file as it is; None if it isn't gzip."""
        with source.open("rb") as file:
            return sha256_file(source) if file.read(len(GZIP_MAGIC)) == GZIP_MAGIC else None

    def content(self, packed: str) -> Content | None:
        """What the file with this digest holds; None if none was unpacked."""
        if packed in self._kept:
            self._used[packed] = self._kept[packed]
        return self._used.get(packed)

    def see(self, source: Path, packed: str, content: Content) -> None:
        """Keeps what was unpacked, if the file is still the one that was hashed before."""
        if self.packed(source) == packed:
            self._used[packed] = content

    def write(self) -> None:
        """Keeps what was asked for since this object was made, and nothing else: so the file can't grow for ever."""
        if self._used == self._kept:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"files": self._used, "digest": _digest(self._used)})
        except OSError as error:
            LOG.debug("what gzip files hold can't be kept: %s", error)

    def _read(self) -> dict[str, Content]:
        try:
            kept = read_json(self.path)
            if kept["digest"] == _digest(kept["files"]):
                return {packed: (str(content[0]), int(content[1])) for packed, content in kept["files"].items()}
        except (OSError, ArtifactDamaged, KeyError, TypeError, ValueError, IndexError, AttributeError):
            pass  # nothing is lost but time
        return {}


def _digest(files: dict[str, Content]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
