"""Fingerprints that are kept while no source file changes: to parse the project is most of what a cached run costs.

A fingerprint is a pure function of the bytes of all source files (this project's own code that takes it is among them)
and of Python's version. So it is found by a digest of these, and a changed, new or missing file makes a new one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from tasks.durable import write_bytes
from tasks.fingerprint import ROOT, Sources
from tasks.progress import LOG

NAME = "fingerprints"

Fingerprints = dict[str, dict[str, str]]


class RememberedSources(Sources):
    """As `Sources`, with a file that keeps what was found.

    Args:
        store: Root of the store; the file is there. It has no say in what the fingerprint is.
        root: As for `Sources`.
        keep: Whether what is new is written; a plan only reads.
    """

    def __init__(self, store: Path, root: Path = ROOT, *, keep: bool = True) -> None:
        super().__init__(root)
        self.path, self.keep = store / NAME, keep

    def fingerprint(self, roots: Iterable[str]) -> dict[str, str]:
        """As `Sources.fingerprint`."""
        wanted = sorted(set(roots))
        name = " ".join(wanted)
        if name not in self._known:
            self._known[name] = super().fingerprint(wanted)
            if self.keep:
                self._write()
        return dict(self._known[name])

    def read(self) -> None:
        """Reads all that the first fingerprint needs, in a thread if one likes; whoever asks meanwhile waits for it."""
        _ = self._known

    @cached_property
    def _tree(self) -> str:
        digest = hashlib.sha256(sys.version.encode())
        for path, content in sorted(self.files.items()):
            digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    @cached_property
    def _known(self) -> Fingerprints:
        try:
            said, _, text = self.path.read_bytes().partition(b"\n")
            if said.decode() == self._digest(text):
                return json.loads(text)
        except (OSError, ValueError):
            pass  # nothing is lost but time
        return {}

    def _write(self) -> None:
        text = json.dumps(self._known, sort_keys=True).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.path, self._digest(text).encode() + b"\n" + text)
        except OSError as error:
            LOG.debug("fingerprints can't be kept: %s", error)

    def _digest(self, text: bytes) -> str:
        """Of kept fingerprints as they are in the file, and of the source files that they are for."""
        return hashlib.sha256(self._tree.encode() + text).hexdigest()
