"""How long a thread keeps Python's lock while others wait for it: shorter, while threads work beside a writer.

ArrayRecord's `write` never lets go of the lock, so a thread that hashes or syncs a closed shard, or decodes the next
raw file, gets it back only at the end of the writer's turn. That is 5 ms by Python's default, and to hash a shard takes
hardly longer. What is gained stands in the README.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 0.0005

_lock = threading.Lock()
_before: list[float] = []  # the interval that was found, once for each that is within


@contextmanager
def short_turns() -> Iterator[None]:
    """Within it turns are short, for the whole process; the last of several that are within sets them back."""
    with _lock:
        _before.append(_before[0] if _before else sys.getswitchinterval())
        sys.setswitchinterval(min(SECONDS, _before[0]))
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                sys.setswitchinterval(before)
