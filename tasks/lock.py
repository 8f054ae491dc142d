"""One holder at a time, between processes: `flock`, which the kernel frees when the holder dies, `kill -9` included."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from datasets.errors import CheckpointLocked

NAME = ".lock"


class Lock:
    """A lock on a file, which is made when needed; the file's text is the holder's process id.

    A file that was unlinked by its last holder while we waited is not the one others will open, so it is opened again.

    Args:
        path: Of the lock file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, blocking: bool = True, poll: float = 0.05) -> bool:
        """Takes the lock; waits for it when `blocking`, looking every `poll` seconds so that signals are served."""
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if not blocking:
                    return False
                time.sleep(poll)
                continue
            if self._is_at_path(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                self._descriptor = descriptor
                return True
            os.close(descriptor)

    def release(self) -> None:
        """Gives the lock back; harmless when it isn't held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> int | None:
        """Process id of the last holder, as far as it is known."""
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return None

    def holds(self) -> bool:
        """Whether we hold it and it is still the file at its path: not removed, nor another of the same name by now."""
        return self._descriptor is not None and self._is_at_path(self._descriptor)

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(folder: Path) -> int:
    """Locks a folder for this process.

    Returns:
        A file descriptor; closing it frees the lock.

    Raises:
        CheckpointLocked: Another holds it; its process id is named.
        OSError: The folder can't be written.
    """
    path = folder / NAME
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked(path, os.pread(lock, 20, 0).decode().strip() or "unknown") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _locked(path: Path, pid: str) -> CheckpointLocked:
    alive = Path("/proc", pid).exists() or not Path("/proc/self").exists()
    return CheckpointLocked(
        "another process writes here", file=path, pid=pid,
        cure="wait for it, or end it" if alive else f"{pid} is gone, but a child that it forked holds on: end that",
    )  # fmt: skip


def holds(lock: int, folder: Path) -> bool:
    """Whether the folder is still the one that was locked: not removed, nor another of the same name by now."""
    try:
        return os.path.samestat(os.fstat(lock), (folder / NAME).stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
