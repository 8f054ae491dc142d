"""Blocks of rows kept in memory, so that rows of any of them are gathered at once.

The oldest goes first, but for blocks whose rows have all been given: those of a window of shuffled blocks that is
through. The next window takes their room, which the processor's cache still holds; in fresh room, reading and gathering
take nearly twice as long.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable

import numpy as np

from datasets.schema import Columns
from tasks.block_order import quotient
from tasks.record_layout import Layout

Fill = Callable[[np.ndarray, np.ndarray, Columns], None]
"""Puts records, whose numbers are sorted, into as many slots of columns [slots, rows, ...]."""

_ABSENT = -(1 << 62)
_FEW = 64  # a part so small doesn't count
_LARGE_PAGE, _LINE = 1 << 21, 64  # bytes


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
        self._shift = np.full(records, _ABSENT, np.int64)  # from a row's number to its place in the arrays, by record
        self._record_in = np.full(slots, -1, np.int64)
        self._next = 0
        self._filled = slice(0, 0)  # slots of the blocks that are being given, and how many of their rows are left
        self._left = 0
        self._arrays = _arrays(layout, slots * rows_per_record)
        self._blocks = {name: a.reshape(slots, rows_per_record, *a.shape[1:]) for name, a in self._arrays.items()}

    def read(self, ids: np.ndarray, fill: Fill) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], as fresh arrays; `fill` reads the blocks that are absent."""
        record = quotient(ids, self._rows_per_record)
        at = self._shift.take(record, mode="clip")
        at += ids
        if ids.size and at.min() >= 0:
            return self._gathered(at)
        wanted = np.zeros(len(self._shift), bool)
        wanted[record] = True
        needed = np.flatnonzero(wanted)
        if len(needed) > self._slots:  # more blocks than there is room for: one roomful after the other
            out = {name: np.empty((len(ids), *a.shape[1:]), a.dtype) for name, a in self._arrays.items()}
            for start in range(0, len(needed), self._slots):
                some = np.flatnonzero(np.isin(record, needed[start : start + self._slots]))
                for name, values in self.read(ids[some], fill).items():
                    out[name][some] = values
            return out
        missing = needed[self._shift[needed] == _ABSENT]
        if missing.size:
            self._load(missing, needed, fill)
        return self._gathered(ids + self._shift.take(record))

    def _gathered(self, at: np.ndarray) -> Columns:
        self._left -= len(at)
        return {name: values.take(at, axis=0, mode="clip") for name, values in self._arrays.items()}

    def _load(self, missing: np.ndarray, needed: np.ndarray, fill: Fill) -> None:
        if self._is_spent:
            self._next = self._filled.start
            missing = self._without_cold(needed)
        around = (np.arange(self._slots) + self._next) % self._slots
        shift = self._shift[needed]
        busy = np.zeros(self._slots, bool)
        busy[(needed + shift // self._rows_per_record)[shift != _ABSENT]] = True
        slots = around[~busy[around]][: len(missing)]
        gone = self._record_in[slots]
        self._shift[gone[gone >= 0]] = _ABSENT
        self._record_in[slots] = -1  # until they are whole
        fill(missing, slots, self._blocks)
        self._record_in[slots], self._shift[missing] = missing, (slots - missing) * self._rows_per_record
        self._note(int(slots[0]), int(slots[-1]) + 1, len(slots))
        self._next = int(slots[-1] + 1) % self._slots

    def _without_cold(self, needed: np.ndarray) -> np.ndarray:
        """Forgets the blocks that lie around from long ago; gives all that are missing then.

        The processor's cache no longer holds these: gathering their rows takes longer than reading them again.
        """
        slots = needed + self._shift[needed] // self._rows_per_record
        cold = (slots < self._filled.start) | (slots >= self._filled.stop)  # the missing are, too
        self._record_in[slots[cold & (slots >= 0)]] = -1
        self._shift[needed[cold]] = _ABSENT
        return needed[cold]

    def _note(self, first: int, end: int, count: int) -> None:
        if end <= first:  # around the end of the arrays
            self._filled, self._left = slice(0, self._slots), 1 << 62
            return
        joins = first == self._filled.stop and not self._is_spent
        self._left = (self._left if joins else 0) + count * self._rows_per_record
        self._filled = slice(self._filled.start if joins else first, end)

    @property
    def _is_spent(self) -> bool:
        """Whether all rows were given, but for a few: a window may share its first and its last block with others."""
        return self._left * _FEW <= (self._filled.stop - self._filled.start) * self._rows_per_record


def _arrays(layout: Layout, rows: int) -> Columns:
    """Room for so many rows in large pages, where the system has them.

    Small ones are given one by one when they are first touched; the first epoch then takes twice as long.
    """
    sizes = [rows * width for width in layout.widths]
    starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes)]).tolist()
    memory = mmap.mmap(-1, starts[-1] + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    first = -whole.ctypes.data % _LARGE_PAGE
    return {
        name: whole[first + start : first + start + size].view(dtype).reshape(rows, *shape)
        for name, dtype, shape, start, size in zip(
            layout.names, layout.dtypes, layout.shapes, starts[:-1], sizes, strict=True
        )
    }
