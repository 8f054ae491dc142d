"""A worker process of the feed: it stays behind others, ends with its parent and leaves nothing in shared memory."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing import connection, resource_tracker, shared_memory
from pathlib import Path

_LAST_CREATION = 0.05  # seconds within which shared memory that has got its name is created


def start_worker(index: int, count: int, *, shared: str) -> None:
    """Runs first in each worker: low priority, and an end when the parent ends, however it ends.

    Args:
        index: Of this worker.
        count: Of all workers.
        shared: Start of the names of what it puts into shared memory, by which the parent finds what a worker that was
            killed had not yet handed over.
    """
    os.nice(19)
    shared_memory._SHM_NAME_PREFIX = f"/{shared}"  # pyright: ignore[reportAttributeAccessIssue]
    shared_memory._SHM_SAFE_NAME_LENGTH = len(shared) + 17  # pyright: ignore[reportAttributeAccessIssue]
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel, shared), daemon=True, name="gristmill-watch").start()


def remove_shared(prefix: str) -> None:
    """Removes shared memory of workers that are gone; Linux shows it as files."""
    for path in Path("/dev/shm").glob(f"{prefix}*"):  # noqa: S108 - no temporary file of ours
        # Python's own way would map it, which fails where a worker was killed before its memory had a size.
        name = f"/{path.name}"
        resource_tracker.register(name, "shared_memory")  # it may know the name or not, and has to forget it
        path.unlink(missing_ok=True)
        resource_tracker.unregister(name, "shared_memory")


def _end_with(sentinel: int, shared: str) -> None:
    connection.wait([sentinel])
    try:
        # What the worker makes at this moment, Python's tracker hasn't heard of: no more of it, then away with it.
        shared_memory._make_filename = threading.Event().wait  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_LAST_CREATION)
        remove_shared(shared)
    finally:
        os._exit(1)
