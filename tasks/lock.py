"""One holder at a time, between processes: `flock`, which the kernel frees when the holder dies, `kill -9` included."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self


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
                holder = f"{os.getpid()}\n".encode()
                if os.fstat(descriptor).st_size > len(holder):  # to cut a file can take as long as all else together
                    os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, holder, 0)
                self._descriptor = descriptor
                return True
            os.close(descriptor)

    def release(self) -> None:
        """Gives the lock back; harmless when it isn't held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_free(self) -> bool:
        """Whether no process holds it; neither makes nor changes the file."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

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
