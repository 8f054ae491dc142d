"""Blocks of rows kept in memory, oldest out first, so that rows of any of them are gathered at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from datasets.schema import Columns
from tasks.record_layout import Layout

Decode = Callable[[np.ndarray], Iterator[Columns]]
"""From sorted numbers of records to the rows of each."""


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

    def read(self, ids: np.ndarray, decoded: Decode) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], as fresh arrays; `decoded` reads the blocks that are absent."""
        record, row = np.divmod(ids, self._rows_per_record)
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
        at = self._slot_of[record] * self._rows_per_record + row
        return {name: values.take(at, axis=0, mode="clip") for name, values in self._arrays.items()}

    def _load(self, missing: np.ndarray, needed: np.ndarray, decoded: Decode) -> None:
        around = (np.arange(self._slots) + self._next) % self._slots
        free = around[~np.isin(self._record_in[around], needed)][: len(missing)]
        for block, record, slot in zip(decoded(missing), missing.tolist(), free.tolist(), strict=True):
            if (old := self._record_in[slot]) >= 0:
                self._slot_of[old] = -1
            self._record_in[slot] = -1  # until it is whole
            for name, room in self._arrays.items():
                room[slot * self._rows_per_record :][: len(block[name])] = block[name]
            self._record_in[slot], self._slot_of[record] = record, slot
        self._next = int(free[-1] + 1) % self._slots
