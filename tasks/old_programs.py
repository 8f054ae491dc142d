"""Programs that JAX keeps of earlier runs of one process: about 30 MB a run, for ever, unless they are dropped."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

KEPT = 4  # runs; what they share is compiled again after each KEPT-th

_runs = count(1)


@contextmanager
def bounded() -> Iterator[None]:
    """Around a run: after every KEPT-th of this process, JAX forgets all that it traced and compiled.

    A process of its own for each run, as the commands and `make serve` have it, never comes to that.
    """
    try:
        yield
    finally:
        if next(_runs) % KEPT == 0 and (jax := sys.modules.get("jax")) is not None:
            jax.clear_caches()
            gc.collect()
