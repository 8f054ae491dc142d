"""Batches on their way to the device before the step asks for them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import jax

from datasets.schema import Columns

DEPTH = 2  # batches on the device besides the one in use: one being copied while one waits


def depth_here() -> int:
    """DEPTH where the device has memory of its own; 0 on a CPU, whose program reads NumPy's memory where it is.

    Measured on a CPU: the compiled step takes a NumPy batch at 1.00 to 1.04 of its bare time, one that was put on the
    "device" first at 0.86 to 0.91 of that speed.
    """
    return 0 if jax.default_backend() == "cpu" else DEPTH


def placed_ahead(
    batches: Iterator[Columns], depth: int, put: Callable[[Columns], Any] = jax.device_put
) -> Iterator[tuple[Columns, Any]]:
    """Pairs each batch with itself on the device; up to `depth` further ones are on their way there.

    Copies run while the device computes, because `put` only begins them. No buffer is used twice: every batch is made
    of fresh arrays, and the host's stay referenced for as long as the device's may read them.

    Args:
        batches: On the host; each is placed once, in order.
        depth: Batches ahead of the one that is given; 0 gives the host's own arrays, unplaced.
        put: Begins the copy of a batch.

    Yields:
        The batch on the host, and what the step takes.
    """
    if not depth:
        for batch in batches:
            yield batch, batch
        return
    ahead: collections.deque[tuple[Columns, Any]] = collections.deque()
    for batch in batches:
        ahead.append((batch, put(batch)))
        if len(ahead) > depth:
            yield ahead.popleft()
    while ahead:
        yield ahead.popleft()
