"""SHA-256 of files taken ahead by threads, while the run that needs them waits for Prefect.

A run whose stages are all cached has hardly anything to do but to read every byte of every artifact. What the last run
of the dataset used is most likely what this one is going to ask for, so it is read from the start on. A digest that was
taken ahead counts only for a file that nothing has touched since; otherwise the file is read again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from tasks.durable import sha256_file

THREADS = 2
LEAST = 1 << 18  # bytes of a file; smaller ones are read as fast as a thread is asked
PIECE = 1 << 24  # bytes at once: while it hashes, a thread needs nothing of Python, and so doesn't wait for its turn
SETTLED = 2_000_000_000  # ns; what changed just now could change again within a tick of the file system's clock

Stamp = tuple[int, int, int, int, int]


class Hashing:
    """Digests of files: taken ahead where that was asked for, now otherwise."""

    def __init__(self) -> None:
        self._ahead: dict[Path, Future[tuple[Stamp, str] | None]] = {}
        self._stopped = Event()

    @contextmanager
    def ahead(self, folders: Iterable[Path]) -> Iterator[None]:
        """While open, threads read the large files of these folders, in this order; those that are gone are left out.

        Args:
            folders: Of artifacts.
        """
        pool, self._stopped = ThreadPoolExecutor(THREADS, thread_name_prefix="hashing"), Event()
        for folder in folders:
            for path in _large(folder):
                self._ahead[path] = pool.submit(_stamped, path, self._stopped)
        try:
            yield
        finally:
            self.stop()
            pool.shutdown(wait=False)

    def sha256(self, path: Path) -> str:
        """SHA-256 of a file's bytes, as 64 lower-case hex digits."""
        taken = self._ahead.pop(path, None)
        # One that no thread has begun with waits behind files that nobody may ask for
        found = taken.result() if taken is not None and not taken.cancel() else None
        if found is not None and found[0] == _stamp(path):
            return found[1]
        return sha256_file(path)

    def stop(self) -> None:
        """Forgets what was taken ahead: a stage works, so the rest is no longer what is going to be asked for."""
        self._stopped.set()
        self._ahead.clear()


def _large(folder: Path) -> list[Path]:
    found = []
    for path in (Path(base, name) for base, _, names in os.walk(folder) for name in names):
        with suppress(OSError):  # it went meanwhile
            if stat.S_ISREG((at := path.stat()).st_mode) and at.st_size >= LEAST:
                found.append(path)
    return sorted(found)


def _stamped(path: Path, stopped: Event) -> tuple[Stamp, str] | None:
    """Digest of a file, and what tells that it is the same later; None if nothing could tell, or none is wanted now."""
    try:
        stamp = _stamp(path)
        if stopped.is_set() or time.time_ns() - stamp[-1] < SETTLED:
            return None
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                if stopped.is_set():
                    return None
                digest.update(piece)
    except OSError:
        return None  # whoever asks for it is going to meet the same error
    return stamp, digest.hexdigest()


def _stamp(path: Path) -> Stamp:
    at = path.stat()
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns  # the last can't be set by anybody
