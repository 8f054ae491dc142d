"""What is left to do with a shard once it is written: count its records, hash it, sync it.

A thread that works beside the writer waits for Python's lock after every call that let go of it. So each of the two
that take time is one call: SHA-256 over the mapped file, and fsync. Nobody else knows the file's name yet.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from concurrent.futures import Executor, Future, wait
from pathlib import Path
from typing import Any

from datasets.errors import StoreError
from tasks.records import Shard, close_shard, open_shard


class ClosedShard:
    """A shard file that gets no more records.

    Args:
        path: Its name for now.
        rows: In it.
        rows_per_record: That it was written with.
        beside: Whose threads do the rest.
        hash_here: Whether to hash in this thread all the same, because every other core has work of its own.

    Raises:
        ArtifactDamaged, DataFormatError: It doesn't hold what was written.
        OSError: It can't be read.
    """

    def __init__(self, path: Path, rows: int, rows_per_record: int, beside: Executor, *, hash_here: bool) -> None:
        self._path, self._digest = path, hashlib.sha256()
        self._shard = Shard(path.name, rows, "", path.stat().st_size)
        close_shard(open_shard(path, self._shard, rows_per_record))
        with path.open("rb", buffering=0) as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        self._work: list[Future[Any]] = [beside.submit(os.fsync, self._descriptor)]
        if hash_here:
            self._digest.update(self._content)
        else:
            self._work.append(beside.submit(self._digest.update, self._content))

    @property
    def is_done(self) -> bool:
        """Whether `result` has nothing to wait for."""
        return all(future.done() for future in self._work)

    def result(self) -> Shard:
        """The shard, which is on disk now; once.

        Raises:
            StoreError: The disk is full or fails.
        """
        wait(self._work)  # all of it: hashing may still read what is closed below
        try:
            for future in self._work:
                future.result()
        except OSError as error:
            raise StoreError("a shard can't be written", file=str(self._path), reason=str(error)) from error
        finally:
            self.close()
        return Shard(self._shard.name, self._shard.rows, self._digest.hexdigest(), self._shard.bytes)

    def close(self) -> None:
        """Lets go of the file, once nothing is being done with it."""
        self._content.close()
        os.close(self._descriptor)
