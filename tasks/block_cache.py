"""Blocks of rows kept in memory, oldest out first, so that rows of any of them are gathered at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from datasets.schema import Columns
from tasks.record_layout import Layout

Decode = Callable[[np.ndarray], Iterator[Columns]]
"""From sorted numbers of records to their rows, [records, rows, ...] a feature: some records of one length a time."""


class BlockCache:
    """Room for blocks, in one array a feature.

    Args:
        layout: Of the rows.
        rows_per_record: Rows of a block.
        slots: Blocks that there is room for, at most.
        records: Number of blocks in all.
    """

    def __init__(self, layout: Layout, rows_per_record: int, slots: int, records: int) -> None:
        slots = min(slots, records)
        self._rows_per_record, self._slots = rows_per_record, slots
        self._slot_of = np.full(records, -1, np.int64)
        self._record_in = np.full(slots, -1, np.int64)
        self._next = 0
        self._arrays = {
            name: np.empty((slots * rows_per_record, *shape), dtype)
            for name, dtype, shape in zip(layout.names, layout.dtypes, layout.shapes, strict=True)
        }

        self._blocks = {name: a.reshape(slots, rows_per_record, *a.shape[1:]) for name, a in self._arrays.items()}

    def read(self, ids: np.ndarray, decoded: Decode) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], as fresh arrays; `decoded` reads the blocks that are absent."""
        record, row = np.divmod(ids, self._rows_per_record)
        slots = self._slot_of[record]
        if ids.size and slots.min() >= 0:
            return self._gathered(slots, row)
        needed = np.unique(record)
        if len(needed) > self._slots:  # more blocks than there is room for: one roomful after the other
            out = {name: np.empty((len(ids), *a.shape[1:]), a.dtype) for name, a in self._arrays.items()}
            for start in range(0, len(needed), self._slots):
                at = np.flatnonzero(np.isin(record, needed[start : start + self._slots]))
                for name, values in self.read(ids[at], decoded).items():
                    out[name][at] = values
            return out
        missing = needed[self._slot_of[needed] < 0]
        if missing.size:
            self._load(missing, needed, decoded)
        return self._gathered(self._slot_of[record], row)

    def _gathered(self, slots: np.ndarray, row: np.ndarray) -> Columns:
        at = slots * self._rows_per_record + row
        return {name: values.take(at, axis=0, mode="clip") for name, values in self._arrays.items()}

    def _load(self, missing: np.ndarray, needed: np.ndarray, decoded: Decode) -> None:
        around = (np.arange(self._slots) + self._next) % self._slots
        free = around[~np.isin(self._record_in[around], needed)][: len(missing)]
        done = 0
        for stacks in decoded(missing):
            count = len(next(iter(stacks.values())))
            records, slots = missing[done : done + count], free[done : done + count]
            gone = self._record_in[slots]
            self._slot_of[gone[gone >= 0]] = -1
            self._record_in[slots] = -1  # until they are whole
            for name, values in self._blocks.items():
                values[slots, : stacks[name].shape[1]] = stacks[name]
            self._record_in[slots], self._slot_of[records] = records, slots
            done += count
        self._next = int(free[-1] + 1) % self._slots
