"""How this process gets memory for big arrays: from what it freed a moment ago, not from the kernel again.

XLA on a CPU allocates a step's intermediate results anew each step, and so does NumPy a batch. glibc takes blocks of
such size from the kernel and gives them back at once when they are freed; each page that comes anew is a fault and is
filled with zeros first. Measured on two cores, a training step of the bundled `cnn` spent more than a third of its time
in that: 74 ms before, 47 ms after.
"""

from __future__ import annotations

import ctypes
import os
import sys

# mallopt's parameters, from glibc's malloc.h, and the same as a new process reads them from its environment
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_FOR_CHILDREN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}


def keep_memory() -> bool:
    """Makes malloc keep what is freed for the next allocation, here and in processes started from here.

    Blocks of any size then come from the one heap that all threads share, and the heap never shrinks: the process holds
    its peak. To be called before many threads start: a thread keeps the heap that it has, and glibc decides once how
    many there may be. It changes no result.

    Returns:
        False where there is no glibc (macOS, musl): memory is then used as the system does it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    for name, value in _FOR_CHILDREN.items():
        os.environ.setdefault(name, value)
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, -1), mallopt(_ARENA_MAX, 1)])
