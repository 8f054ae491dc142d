"""Mean and standard deviation of float32 numbers, exact whatever the order and the blocks in which they come.

A float is a whole number times a power of two. The whole numbers are added up apart for each power, so no addition
rounds and none depends on those before it; sums and sums of squares are rounded once, at the end. That also spares the
textbook formula for the variance its cancellation.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

MANTISSA = 53  # bits of a float64
LOW = 27  # bits of the lower part of a mantissa: sums of 2**26 such parts are exact in a float64
BINS, ZERO = 640, 320  # exponents of float32 numbers and of their squares lie within -298 ... 256
MOST_AT_ONCE = 1 << 24  # numbers


class ExactSum:
    """Sums of [components] that no order changes.

    Args:
        components: How many sums.
    """

    def __init__(self, components: int) -> None:
        self._high = np.zeros((components, BINS), np.int64)
        self._low = np.zeros((components, BINS), np.int64)

    def add(self, values: np.ndarray) -> None:
        """Adds float64 [rows, components]: finite float32 numbers, or squares of such."""
        components = self._high.shape[0]
        at_once = max(1, MOST_AT_ONCE // components)
        for start in range(0, len(values), at_once):
            mantissas, exponents = np.frexp(values[start : start + at_once])
            whole = (mantissas * 2.0**MANTISSA).astype(np.int64)
            cells = (exponents + ZERO + BINS * np.arange(components)).reshape(-1)
            for sums, part in ((self._high, whole >> LOW), (self._low, whole & ((1 << LOW) - 1))):
                counted = np.bincount(cells, part.reshape(-1).astype(np.float64), minlength=sums.size)
                sums += counted.astype(np.int64).reshape(sums.shape)

    def totals(self) -> list[Fraction]:
        """The sums, exactly."""
        return [self._total(component) for component in range(len(self._high))]

    def _total(self, component: int) -> Fraction:
        total = Fraction(0)
        for cell in np.flatnonzero(self._high[component] | self._low[component]).tolist():
            whole = (int(self._high[component, cell]) << LOW) + int(self._low[component, cell])
            total += whole * Fraction(2) ** (cell - ZERO - MANTISSA)
        return total


class Moments:
    """Mean and standard deviation of [components].

    Args:
        components: How many.
    """

    def __init__(self, components: int) -> None:
        self.rows = 0
        self._sum, self._squares = ExactSum(components), ExactSum(components)

    def add(self, values: np.ndarray) -> None:
        """Adds finite float32 [rows, components]."""
        wide = values.astype(np.float64)
        self.rows += len(values)
        self._sum.add(wide)
        self._squares.add(wide * wide)  # 48 bits: exact

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Float64 [components] each; the deviation is that of all rows, divided by their number."""
        means, variances = [], []
        for total, squares in zip(self._sum.totals(), self._squares.totals(), strict=True):
            mean = total / self.rows
            means.append(float(mean))
            variances.append(float(squares / self.rows - mean * mean))
        return np.array(means), np.array([math.sqrt(variance) for variance in variances])
