"""SHA-256 of files taken ahead by threads, while the run that needs them waits for Prefect.

A run whose stages are all cached has hardly anything to do but to read every byte of every artifact. What the last run
of the dataset used is most likely what this one is going to ask for, so it is read from the start on. A digest that was
taken ahead counts only for a file that nothing has touched since; otherwise the file is read again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread
from typing import Self

from tasks.durable import sha256_file, sizes_below

THREADS = max(1, min(2, len(os.sched_getaffinity(0)) - 1))  # one core is for the server, which the run waits for
LEAST = 1 << 18  # bytes of a file; smaller ones are read as fast as a thread is asked
PIECE = 1 << 24  # bytes at once: while it hashes, a thread needs nothing of Python, and so doesn't wait for its turn
SETTLED = 2_000_000_000  # ns; what changed just now could change again within a tick of the file system's clock

Stamp = tuple[int, int, int, int, int]
Taken = tuple[Stamp, str] | None
"""Digest of a file, and what tells that it is the same later."""


class Hashing:
    """Digests of files: taken ahead where that was asked for, now otherwise. At its end as a context it stops."""

    def __init__(self) -> None:
        self._ahead: dict[Path, Future[Taken]] = {}
        self._stopped = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self, folders: Iterable[Path]) -> None:
        """Lets threads read the large files of these folders, in this order; those that are gone are left out.

        Args:
            folders: Of artifacts.
        """
        self._stopped = Event()
        self._ahead = {path: Future() for folder in folders for path in _large(folder)}
        todo = iter(list(self._ahead.items()))
        for _ in range(THREADS):  # no pool: a process that ends early would wait for all of its files
            Thread(target=_take, args=(todo, self._stopped), name="hashing", daemon=True).start()

    def sha256(self, path: Path) -> str:
        """SHA-256 of a file's bytes, as 64 lower-case hex digits."""
        taken = self._ahead.pop(path, None)
        # One that no thread has begun with waits behind files that nobody may ask for
        found = taken.result() if taken is not None and not taken.cancel() else None
        if found is not None and found[0] == stamp_of(path):
            return found[1]
        return sha256_file(path)

    def stop(self) -> None:
        """Forgets what was taken ahead: a stage works, or all are done, so nothing of it is going to be asked for."""
        self._stopped.set()
        self._ahead.clear()


def _take(todo: Iterator[tuple[Path, Future[Taken]]], stopped: Event) -> None:
    for path, promised in todo:  # all threads share it: to go on in it is one step of Python
        if promised.set_running_or_notify_cancel():
            promised.set_result(_stamped(path, stopped))


def _large(folder: Path) -> list[Path]:
    try:
        sizes = sizes_below(folder)
    except OSError:  # it is gone
        return []
    return [folder / name for name in sorted(sizes) if sizes[name] >= LEAST]


def _stamped(path: Path, stopped: Event) -> Taken:
    """None if nothing could tell that a file is the same later, or its digest isn't wanted any more."""
    try:
        stamp = stamp_of(path)
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


def stamp_of(path: Path) -> Stamp:
    """Device, inode, size, and times (ns) of the last change of content and of anything: others after a change."""
    at = path.stat()
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns  # the last can't be set by anybody
