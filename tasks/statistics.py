"""What a feature's values are like, summed up in one pass over blocks and in bounded memory.

Values of few kinds (whole numbers of one byte, labels) are counted exactly. Of all others, moments are exact and
quantiles come from a sample: the rows whose hashed number is least, which are the same for every cut into blocks.
A feature of shape (n,) with n <= 64, such as the columns of a table, is summed up number by number; any other as a
whole. Of a feature whose examples have lengths of their own, it is the lengths.

Summaries of parts of a split, a shard each, are merged; so the parts may be read at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets.ragged import Ragged
from datasets.schema import Feature
from datasets.splits import hashed

MOST_COMPONENTS = 64
MOST_SAMPLED = 10_000  # rows
MOST_VALUES = 1_000_000  # in a sample
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 20


@dataclass(frozen=True)
class Distribution:
    """Values in ascending order and how often each occurs."""

    values: np.ndarray
    weights: np.ndarray

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The least value at or below which such a share of all lies (the inverse of the distribution function)."""
        sums = np.cumsum(self.weights)
        at = np.searchsorted(sums, np.asarray(shares) * sums[-1], side="left")
        return [float(self.values[min(i, len(self.values) - 1)]) for i in at.tolist()]

    def histogram(self, edges: Sequence[float]) -> list[float]:
        """Shares of the bins between edges: (-inf, edge 0], (edge 0, edge 1], ..., (last edge, inf)."""
        bins = np.searchsorted(np.asarray(edges), self.values, side="left")
        counts = np.bincount(bins, weights=self.weights, minlength=len(edges) + 1)
        return (counts / counts.sum()).tolist()

    def edges(self) -> list[float]:
        """Edges of bins that hold about as much each."""
        return sorted(set(self.quantiles([i / BINS for i in range(1, BINS)])))


class FeatureStatistics:
    """Sums up one feature of one split.

    Args:
        feature: What its values are.
        first: Number of the first row that it gets, in the split.
    """

    def __init__(self, feature: Feature, first: int = 0) -> None:
        self.of_lengths = feature.varies
        self.feature = feature = Feature("int64") if feature.varies else feature
        self.by_component = len(feature.shape) == 1 and feature.shape[0] <= MOST_COMPONENTS
        self.components = feature.shape[0] if self.by_component else 1
        dtype = np.dtype(feature.dtype)
        counted = bool(feature.classes) or dtype.itemsize == 1
        self._values: _Counts | _Sampled = _Counts(feature, self.components) if counted else _Sampled(feature, self)
        self.rows, self._first = 0, first

    def add(self, column: np.ndarray | Ragged) -> None:
        """Adds a block that fits the feature, [rows, *shape]."""
        column = column.lengths if isinstance(column, Ragged) else column
        row = self._first + self.rows
        self._values.add(column.reshape(-1, self.components) if self.by_component else column.reshape(-1, 1), row)
        self.rows += len(column)

    def merge(self, later: FeatureStatistics) -> None:
        """Adds what was summed up of other rows of the same feature."""
        self._values.merge(later._values)
        self.rows += later.rows

    def distributions(self) -> list[Distribution]:
        """One a component."""
        return self._values.distributions()

    def to_json(self) -> dict[str, Any]:
        """Statistics; of a feature with components, a list of one value each."""
        stats = {"count": self.rows * int(np.prod(self.feature.shape, dtype=np.int64)), "missing": 0}
        parts = [self._one(i, d) for i, d in enumerate(self.distributions())]
        merged = {name: [part[name] for part in parts] if self.by_component else parts[0][name] for name in parts[0]}
        if self.of_lengths:
            merged["of"] = "length"
        if len(self.feature.shape) >= 2:
            merged["size"] = list(self.feature.shape)
        return {**stats, **merged}

    def _one(self, component: int, distribution: Distribution) -> dict[str, Any]:
        moments = self._values.moments(component)
        edges = distribution.edges()
        quantiles = dict(zip(map(str, QUANTILES), distribution.quantiles(QUANTILES), strict=True))
        return {**moments, "quantiles": quantiles, "edges": edges, "shares": distribution.histogram(edges)}


class _Counts:
    """How often each value of a small range occurs."""

    def __init__(self, feature: Feature, components: int) -> None:
        low = 0 if feature.classes or np.dtype(feature.dtype).kind in "ub" else -128
        self._low, self._counts = low, np.zeros((components, max(256, len(feature.classes))), np.int64)

    def add(self, values: np.ndarray, row: int) -> None:
        for component, counts in enumerate(self._counts):
            index = values[:, component]
            index = index if index.dtype == np.uint8 else index.astype(np.int64) - self._low
            counts += np.bincount(index, minlength=len(counts))

    def merge(self, later: Any) -> None:  # noqa: ANN401 - of the same kind, as is the feature
        self._counts += later._counts

    def distributions(self) -> list[Distribution]:
        values = np.arange(self._counts.shape[1]) + self._low
        return [Distribution(values[counts > 0], counts[counts > 0]) for counts in self._counts]

    def moments(self, component: int) -> dict[str, float]:
        found = self.distributions()[component]
        total = found.weights.sum()
        mean = float((found.values * found.weights).sum() / total)
        variance = float((np.square(found.values - mean) * found.weights).sum() / total)
        return {
            "min": float(found.values[0]), "max": float(found.values[-1]), "mean": mean, "std": float(np.sqrt(variance))
        }  # fmt: skip


class _Sampled:
    """Exact moments (Chan, Golub, LeVeque 1983: the pairwise update) and a sample of rows."""

    def __init__(self, feature: Feature, whole: FeatureStatistics) -> None:
        size = int(np.prod(feature.shape, dtype=np.int64))
        self._most = max(100, min(MOST_SAMPLED, MOST_VALUES // size))
        self._count = 0
        self._mean, self._squares = np.zeros(whole.components), np.zeros(whole.components)
        self._low, self._high = np.full(whole.components, np.inf), np.full(whole.components, -np.inf)
        self._hashes, self._rows = np.zeros(0), np.zeros((0, size // whole.components, whole.components))

    def add(self, values: np.ndarray, row: int) -> None:
        if not len(values):
            return
        wide = values.astype(np.float64)
        mean = wide.mean(axis=0)
        self._moments(len(wide), mean, np.square(wide - mean).sum(axis=0), wide.min(axis=0), wide.max(axis=0))
        rows = wide.reshape(-1, *self._rows.shape[1:])
        self._sample(rows, hashed(np.arange(row, row + len(rows)), "sample of a feature"))

    def merge(self, later: Any) -> None:  # noqa: ANN401 - of the same kind, as is the feature
        if later._count:
            self._moments(later._count, later._mean, later._squares, later._low, later._high)
            self._sample(later._rows, later._hashes)

    def _moments(self, new: int, mean: np.ndarray, squares: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        count, delta = self._count + new, mean - self._mean
        self._squares += squares + delta**2 * (self._count * new / count)
        self._mean += delta * (new / count)
        self._count = count
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def _sample(self, rows: np.ndarray, hashes: np.ndarray) -> None:
        limit = self._hashes.max() if len(self._hashes) == self._most else 1.0
        near = hashes < limit
        hashes = np.concatenate([self._hashes, hashes[near]])
        rows = np.concatenate([self._rows, rows[near]])
        kept = np.argpartition(hashes, self._most - 1)[: self._most] if len(hashes) > self._most else slice(None)
        self._hashes, self._rows = hashes[kept], rows[kept]

    def distributions(self) -> list[Distribution]:
        flat = self._rows.reshape(-1, self._rows.shape[2])
        return [Distribution(*np.unique(flat[:, i], return_counts=True)) for i in range(flat.shape[1])]

    def moments(self, component: int) -> dict[str, float]:
        return {
            "min": float(self._low[component]), "max": float(self._high[component]),
            "mean": float(self._mean[component]),
            "std": float(np.sqrt(self._squares[component] / self._count)),
        }  # fmt: skip
