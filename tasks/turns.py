"""How soon a thread gets its turn while another one is in C code that doesn't let go of Python's lock.

A thread that hashes or reads without the lock wants it back between two pieces, and asks in vain for 5 ms each time
while ArrayRecord's writer, which never lets go of it, is fed. So the helper threads would fall behind what is written.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERVAL = 1e-4  # seconds; it costs nothing while nobody waits

_LOCK = threading.Lock()
_WITHIN = 0
_BEFORE = 0.0


@contextmanager
def quick_turns() -> Iterator[None]:
    """Within it, a thread that waits for Python's lock gets it after 0.1 ms; several threads may be within it."""
    global _WITHIN, _BEFORE
    with _LOCK:
        if _WITHIN == 0:
            _BEFORE = sys.getswitchinterval()
            sys.setswitchinterval(min(INTERVAL, _BEFORE))
        _WITHIN += 1
    try:
        yield
    finally:
        with _LOCK:
            _WITHIN -= 1
            if _WITHIN == 0:
                sys.setswitchinterval(_BEFORE)
