"""What downloaded files without a pinned digest were when they were used first: trust on first use.

The record lies beside the raw artifacts, `raw/<dataset>/first_use.json`. The rule: as long as an object has the version
that it had, it must have the bytes that it had; http tells no version, so there a file without a pin must stay what it
was. A new version is a new first use, and a new run. To take another file over http, remove the folder that the error
names.
"""

from __future__ import annotations

from pathlib import Path

from datasets.errors import FetchError
from datasets.schema import RawFile
from tasks.durable import read_json, write_json

FILE = "first_use.json"


class FirstUse:
    """The record of one dataset.

    Args:
        folder: Of its raw artifacts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._known: dict[str, dict[str, str | int]] = read_json(self.path) if self.path.is_file() else {}

    def pin(self, name: str, version: str = "") -> RawFile:
        """The raw file as it was first; without a digest if there was none of this version."""
        seen = self._known.get(name)
        if seen is None or seen["version"] != version:
            return RawFile(name)
        return RawFile(name, str(seen["sha256"]), int(seen["bytes"]))

    def see(self, file: RawFile, version: str = "") -> None:
        """Records what a file is, or holds it against the record.

        Raises:
            FetchError: It isn't what it was under the same version.
        """
        pinned = self.pin(file.name, version)
        if pinned == file:
            return
        if pinned.sha256:
            raise self.changed(pinned, f"sha256 {file.sha256}, {file.bytes} bytes")
        self._known[file.name] = {"sha256": file.sha256, "bytes": file.bytes, "version": version}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self._known)

    def changed(self, pinned: RawFile, got: object) -> FetchError:
        """The error of a file that isn't what it was."""
        return FetchError(
            "a raw file changed upstream since its first use", file=pinned.name, got=got,
            expected=f"sha256 {pinned.sha256}, {pinned.bytes} bytes",
            cure=f"remove {self.path.parent} to take what is there now, or pin the file in the dataset file",
        )  # fmt: skip
