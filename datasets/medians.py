"""The exact median in bounded memory: two passes, each of which counts one half of the numbers' 32 bits.

Numbers become uint32 keys in their order. The first pass counts the keys' upper 16 bits, which says in which of 65,536
ranges the median lies; the second counts the lower 16 bits of the keys in that range. Nothing depends on the order.
"""

from __future__ import annotations

import numpy as np

HALF = 1 << 16
SIGN = np.uint32(1 << 31)


class Median:
    """The lower median of [components]: of an even number of values, the smaller of the two in the middle.

    Args:
        components: How many.
        dtype: Of the values: float32, or whole numbers that fit into 32 bits.
    """

    def __init__(self, components: int, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._upper: list[int] | None = None
        self._rank = [0] * components
        self._counts = np.zeros((components, HALF), np.int64)

    def add(self, component: int, values: np.ndarray) -> None:
        """Adds values [rows] of one component to this pass; both passes must get the same ones."""
        keys = ordered(values)
        upper = keys >> np.uint32(16)
        part = upper if self._upper is None else keys[upper == self._upper[component]] & np.uint32(HALF - 1)
        self._counts[component] += np.bincount(part, minlength=HALF)

    def end(self) -> np.ndarray | None:
        """Ends a pass: None after the first, then the medians, [components] of the dtype.

        Raises:
            ValueError: A component has no values.
        """
        totals = self._counts.sum(axis=1).tolist()
        if self._upper is None:
            if 0 in totals:
                raise ValueError(f"component {totals.index(0)} has no values")
            self._rank = [(total - 1) // 2 for total in totals]
        cells = [
            int(np.searchsorted(np.cumsum(counts), rank, side="right"))
            for counts, rank in zip(self._counts, self._rank, strict=True)
        ]
        if self._upper is None:
            below = [int(counts[:cell].sum()) for counts, cell in zip(self._counts, cells, strict=True)]
            self._rank = [rank - less for rank, less in zip(self._rank, below, strict=True)]
            self._upper = cells
            self._counts[:] = 0
            return None
        keys = np.array([(upper << 16) | lower for upper, lower in zip(self._upper, cells, strict=True)], np.uint32)
        return numbers(keys, self._dtype)


def ordered(values: np.ndarray) -> np.ndarray:
    """Keys uint32 that are in the order of the values; -0.0 and 0.0 have one key."""
    if values.dtype.kind != "f":
        return (values.astype(np.int64) + (0 if values.dtype.kind in "ub" else 1 << 31)).astype(np.uint32)
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def numbers(keys: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The values of a dtype that have these keys."""
    if dtype.kind != "f":
        return (keys.astype(np.int64) - (0 if dtype.kind in "ub" else 1 << 31)).astype(dtype)
    return np.where(keys & SIGN, keys & ~SIGN, ~keys).astype(np.uint32).view(np.float32).astype(dtype)
