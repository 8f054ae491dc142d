"""Blocks that ArrayRecord's reader has checked once are from then on read straight from their place in the file.

The reader looks a record up, copies it through buffers of its own and compares its hash. For a block of 13 kB all that
takes ten times as long as the file system needs to put the bytes where they belong. Records of one length, each in a
chunk of its own and not compressed, as `shard_writer.py` writes them, lie at places that can be computed. What is read
there counts only if it adds up to what the reader found there before; whatever doesn't (a shard that was written
otherwise, a file that has changed since) goes to the reader, which takes it or says what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from datasets.schema import Columns
from tasks.record_layout import Layout

MOST_OPEN = 256  # files
_LANES = 191  # words that are added up side by side; odd
_ADDED_AT_ONCE = 1 << 14  # lanes: their sums are still in the processor's cache when they are folded
_MOST_PIECES = 1000  # of one read; Linux takes 1024

# Riegeli/records, doc/riegeli_records_file_format.md at github.com/google/riegeli: a file is a sequence of chunks,
# interrupted by a header at each multiple of 64 KiB
_INTERVAL, _HEADER, _CHUNK_HEADER = 1 << 16, 24, 40
_UNINTERRUPTED = _INTERVAL - _HEADER

_UNKNOWN, _CHECKED, _REFUSED = 0, 1, 2
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that a product with it loses nothing
_FOLD = np.uint64(29)  # no divisor of 32: signs of two float32 in one word must not fall on each other


def places_of(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where records lie in a file of records of one size, one a chunk and not compressed.

    Args:
        numbers: Of the records, counted from 0: int64 [N].
        size: Of each record, bytes.

    Returns:
        Offsets of their first bytes in the file, and the number of bytes until the next header interrupts: int64 [N].
    """
    length_of_size = max(1, -(-size.bit_length() // 7))  # as a varint
    before = _CHUNK_HEADER + 2 + length_of_size  # the data begins with how it is compressed and the size of its sizes
    at = _CHUNK_HEADER + numbers * (before + size) + before  # the first chunk is the file's signature, without data
    headers, within = np.divmod(at, _UNINTERRUPTED)
    return at + _HEADER * (headers + 1), _UNINTERRUPTED - within


class StraightReads:
    """What is known of the blocks of a split, and the files that they lie in.

    Args:
        paths: Of the shards.
        first_record: Number of the first record of each shard, and of all records: int64 [shards + 1].
        layout: Of the rows.
        rows_per_record: In a whole record; shorter ones are always left to the reader.
    """

    def __init__(self, paths: Sequence[Path], first_record: np.ndarray, layout: Layout, rows_per_record: int) -> None:
        self._paths, self._first_record = paths, first_record
        sizes = [rows_per_record * width for width in layout.widths]
        self._size, self._files = sum(sizes), dict[int, FileIO]()
        pieces = len(sizes) + 2 * (self._size // _UNINTERRUPTED + 2)
        # Sums are of words of 8 bytes
        self._usable = not layout.ragged and all(s and s % 8 == 0 for s in sizes) and pieces <= _MOST_PIECES
        self._factors = _factors(sizes) if self._usable else []
        self._state = np.zeros(int(first_record[-1]), np.uint8)
        self._sums = np.zeros(len(self._state), np.uint64)
        self._blocks: Columns = {}  # that the last reads were into; to find the slots in them is a third of a read
        self._pieces: dict[int, list[memoryview]] = {}
        self._gap = np.empty(_HEADER, np.uint8)  # takes in the headers, which nobody looks at

    def fill(self, records: np.ndarray, slots: np.ndarray, blocks: Columns) -> np.ndarray:
        """Reads the records that were checked before into their slots; gives which of them are still to be read.

        Args:
            records: Their numbers, int64 [N].
            slots: Where they belong, int64 [N].
            blocks: [slots, rows, *shape] a feature.

        Returns:
            bool [N].
        """
        known = np.flatnonzero(self._state[records] == _CHECKED)
        left = np.ones(len(records), bool)
        if known.size:
            asked, into = records[known], slots[known]
            shards = np.searchsorted(self._first_record, asked, side="right") - 1
            starts, uninterrupted = places_of(asked - self._first_record[shards], self._size)
            where = list(zip(shards.tolist(), starts.tolist(), uninterrupted.tolist(), into.tolist(), strict=True))
            right = np.zeros(len(asked), bool)
            if self._read(where, blocks):
                # All of them at the end: rows are gathered twice as fast from what was looked at last, not written
                right = self._sums_of(blocks, into) == self._sums[asked]
            self._state[asked[~right]] = _REFUSED
            left[known] = ~right
        return left

    def checked(self, records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        """Notes what whole records add up to that the reader has checked and that lie in these slots."""
        if self._usable:
            new = self._state[records] == _UNKNOWN
            self._sums[records[new]] = self._sums_of(blocks, slots[new])
            self._state[records[new]] = _CHECKED

    def _read(self, where: list[tuple[int, int, int, int]], blocks: Columns) -> bool:
        """Whether the files could be read; that they held what they should is another question.

        Args:
            where: Shard, offset, bytes until a header interrupts, and slot of each record; sorted.
            blocks: Where the slots are.
        """
        if blocks is not self._blocks or len(self._pieces) > _MOST_PIECES:
            self._blocks, self._pieces = blocks, {}
        columns, known, size = _as_bytes(blocks), self._pieces, self._size
        descriptor, of_shard, read = -1, -1, os.preadv  # looked up once: the loop is a third of a read
        try:
            for shard, start, left, slot in where:
                if shard != of_shard:
                    descriptor, of_shard = self._descriptor(shard), shard
                pieces = known.get(slot) or known.setdefault(slot, [column[slot].data for column in columns])
                read(descriptor, pieces if left >= size else self._interrupted(pieces, left), start)
        except OSError:  # the reader finds out what is wrong
            return False
        return True

    def _interrupted(self, buffers: list[memoryview], left: int) -> list[Any]:
        """The buffers with room for a header after the first `left` bytes and wherever else one lies."""
        pieces: list[Any] = []
        for buffer in buffers:
            rest = buffer
            while len(rest) > left:
                pieces += [rest[:left], self._gap]
                rest, left = rest[left:], _UNINTERRUPTED
            pieces.append(rest)
            left -= len(rest)
        return pieces

    def _descriptor(self, shard: int) -> int:
        if shard not in self._files:
            if len(self._files) >= MOST_OPEN:
                self._files.pop(next(iter(self._files))).close()
            self._files[shard] = FileIO(self._paths[shard])
        return self._files[shard].fileno()

    def _sums_of(self, blocks: Columns, slots: np.ndarray) -> np.ndarray:
        """Sums of the blocks in some slots, as words of 8 bytes, modulo 2**64: uint64 [N].

        Words are first added up in lanes, every so many words one, then each lane counts with an odd factor of its own.
        So the change of a single word is found for certain, and what disks do, too: a sector or page that is empty, old
        or another's has its words in other lanes, because a lane is an odd number of words away from itself, more than
        there are sectors. A product only carries upwards, so the upper bits of a lane are folded into the lower ones
        before: otherwise two signs that changed would add up to nothing, and a page of float64 ones to as much as a
        page of zeros. Not seen are words of one lane that change by opposite amounts, or two of their uppermost bits.
        """
        total = np.zeros(len(slots), np.uint64)
        turns = np.flatnonzero(np.diff(slots) != 1) + 1  # slots in a row are a view of the blocks
        runs = list(zip([0, *turns.tolist()], [*turns.tolist(), len(slots)], strict=True))
        for column, own in zip(_as_bytes(blocks), self._factors, strict=True):
            words, at_once = column.view(np.uint64), max(1, _ADDED_AT_ONCE // len(own))
            for begin, end in runs:
                for start in range(begin, end, at_once):
                    stop = min(start + at_once, end)
                    lanes = _in_lanes(words[slots[start] : slots[stop - 1] + 1], len(own))
                    lanes ^= lanes >> _FOLD
                    total[start:stop] += np.einsum("ij,j->i", lanes, own)
        return total


def _in_lanes(words: np.ndarray, lanes: int) -> np.ndarray:
    """Sums of every `lanes`-th word, modulo 2**64: fresh uint64 [N, lanes] of uint64 [N, words]."""
    whole = words.shape[1] // lanes * lanes
    sums = np.add.reduce(words[:, :whole].reshape(len(words), -1, lanes), axis=1)
    sums[:, : words.shape[1] - whole] += words[:, whole:]
    return sums


def _lanes_of(words: int) -> int:
    """So many that a sector's distance, 64 words, times anything less than the sectors there are is no multiple."""
    return min(words, max(_LANES, words // 64 + 1 | 1))


def _as_bytes(blocks: Columns) -> list[np.ndarray]:
    """uint8 [slots, bytes of a block], a view of each."""
    return [block.reshape(len(block), -1).view(np.uint8) for block in blocks.values()]


def _factors(sizes: list[int]) -> list[np.ndarray]:
    """An odd factor for each lane of columns of so many bytes: uint64 [lanes] each."""
    lanes = [_lanes_of(size // 8) for size in sizes]
    odd = np.arange(1, 2 * sum(lanes), 2, dtype=np.uint64) * _SPREAD
    return np.split(odd, np.cumsum(lanes)[:-1])
