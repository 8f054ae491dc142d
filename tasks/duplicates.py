"""The same inputs more than once, within a split and across splits, by decoded content and not by file.

Every row's inputs are hashed to 128 bits (two folds of SplitMix64, so a chance collision among ten million rows has a
probability of about 1e-25). Memory: 25 bytes a row, some 100 while they are compared. Of floats, 0.0 and -0.0 differ,
as their bytes do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datasets.splits import mixed

SHOWN = 10
MOST_GROUPS = 100_000  # that are looked through for examples; all are counted
SEEDS = (0x243F6A8885A308D3, 0x13198A2E03707344)  # digits of pi
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Contents:
    """Hashes of the inputs of all splits.

    Attributes:
        splits: Names, in the order in which they were added.
    """

    splits: list[str] = field(default_factory=list)
    _hashes: list[np.ndarray] = field(default_factory=list)
    _labels: list[np.ndarray] = field(default_factory=list)
    _of: list[np.ndarray] = field(default_factory=list)

    def add(self, split: str, inputs: np.ndarray, labels: np.ndarray) -> None:
        """Adds rows of a split, in order: inputs [rows, *shape], labels whole numbers [rows]."""
        self.add_hashed(split, fingerprints(inputs), labels)

    def add_hashed(self, split: str, hashes: np.ndarray, labels: np.ndarray) -> None:
        """Adds rows of a split, in order, whose inputs are hashed already: uint64 [rows, 2]."""
        if split not in self.splits:
            self.splits.append(split)
        self._hashes.append(hashes)
        self._labels.append(labels.astype(np.int64))
        self._of.append(np.full(len(labels), self.splits.index(split), np.uint8))

    def duplicates(self) -> dict[str, Any]:
        """What occurs more than once.

        Returns:
            within: by split, how many of its rows repeat an earlier row of it;
            across: by pair of splits, how many rows of the second have inputs that the first has too;
            conflicting: in how many of these groups the labels differ;
            pairs: up to 10 examples, [split, record, split, record, labels differ], conflicts and leaks first.
        """
        hashes, labels, of = (np.concatenate(parts) for parts in (self._hashes, self._labels, self._of))
        starts = np.searchsorted(of, np.arange(len(self.splits)))  # rows came split by split
        order = np.lexsort((np.arange(len(of)), hashes[:, 1], hashes[:, 0]))
        group = np.zeros(len(order), np.int64)
        group[1:] = np.cumsum((hashes[order][1:] != hashes[order][:-1]).any(axis=1))
        sizes = np.bincount(group)
        order, group = order[sizes[group] > 1], group[sizes[group] > 1]  # only what occurs again
        names = self.splits
        member = {name: np.unique(group[of[order] == i]) for i, name in enumerate(names)}
        within = {
            name: int(np.count_nonzero(of[order] == i) - len(member[name])) for i, name in enumerate(names)
        }  # fmt: skip
        across = {
            f"{one}/{other}": int(np.isin(group[of[order] == j], member[one]).sum())
            for i, one in enumerate(names) for j, other in enumerate(names) if i < j
        }  # fmt: skip
        first = np.flatnonzero(np.diff(group, prepend=-1))
        low, high = np.minimum.reduceat(labels[order], first), np.maximum.reduceat(labels[order], first)
        conflicting = low != high if len(first) else np.zeros(0, bool)
        ends = np.append(first[1:], len(order))[: min(len(first), MOST_GROUPS)].tolist()
        pairs = [
            self._pair(order[start:end], of, labels, starts)
            for start, end in zip(first[:MOST_GROUPS].tolist(), ends, strict=True)
        ]
        pairs.sort(key=lambda pair: (not pair[4], pair[0] == pair[2], pair))
        return {
            "within": within, "across": across, "conflicting": int(np.count_nonzero(conflicting)),
            "pairs": pairs[:SHOWN],
        }  # fmt: skip

    def _pair(self, rows: np.ndarray, of: np.ndarray, labels: np.ndarray, starts: np.ndarray) -> list[Any]:
        """Two rows of a group: of different labels if there are, else of different splits if there are."""
        one = int(rows[0])
        other = next((row for row in rows.tolist() if labels[row] != labels[one]), None)
        other = other or next((row for row in rows.tolist() if of[row] != of[one]), int(rows[1]))
        places = [[self.splits[of[row]], row - int(starts[of[row]])] for row in (one, other)]
        return [*places[0], *places[1], bool(labels[one] != labels[other])]


def fingerprints(inputs: np.ndarray) -> np.ndarray:
    """128 bits for the bytes of each row, uint64 [rows, 2]."""
    flat = np.ascontiguousarray(inputs).reshape(len(inputs), -1)
    raw = flat.view(np.uint8).reshape(len(flat), flat.shape[1] * flat.itemsize)
    words = np.zeros((-(-raw.shape[1] // 8), len(raw)), np.uint64)  # a word of all rows lies together
    padded = np.zeros((len(raw), len(words) * 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    words[:] = padded.view(np.uint64).T
    out = np.empty((len(raw), 2), np.uint64)
    for i, seed in enumerate(SEEDS):
        state = np.full(len(raw), seed, np.uint64)
        for word in words:
            state = mixed(state + GOLDEN ^ word)
        out[:, i] = state
    return out
