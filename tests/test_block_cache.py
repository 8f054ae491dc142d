from __future__ import annotations

import numpy as np
import pytest

from datasets.schema import Columns, Feature
from tasks.block_cache import BlockCache
from tasks.record_layout import Layout

LAYOUT = Layout.of({"x": Feature("uint8", (3,)), "id": Feature("int64")})
ROWS, SIZE = 4, 22  # the last of six blocks is short


class Filled:
    """Fills blocks in and notes which ones were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        assert (np.diff(records) > 0).all()
        assert len(set(slots.tolist())) == len(records)
        for record, slot in zip(records.tolist(), slots.tolist(), strict=True):
            self.asked.append(record)
            ids = np.arange(record * ROWS, min(SIZE, record * ROWS + ROWS))
            blocks["id"][slot, : len(ids)] = ids
            blocks["x"][slot, : len(ids)] = ids[:, None] + [0, 1, 2]


@pytest.mark.parametrize("slots", [1, 2, 3, 6, 100])
def test_rows_come_in_the_order_asked_for_whatever_the_room(slots: int) -> None:
    cache, filled, random = BlockCache(LAYOUT, ROWS, slots, 6), Filled(), np.random.default_rng(0)
    for _ in range(60):
        ids = random.integers(0, SIZE, random.integers(1, 9))
        rows = cache.read(ids, filled)
        np.testing.assert_array_equal(rows["id"], ids)
        np.testing.assert_array_equal(rows["x"], (ids[:, None] + [0, 1, 2]).astype(np.uint8))
        assert rows["x"].dtype == np.uint8


def test_a_block_that_is_there_is_not_read_again_and_the_oldest_goes_first() -> None:
    cache, filled = BlockCache(LAYOUT, ROWS, 2, 6), Filled()
    for record in (0, 1, 0, 1, 2, 1, 0):
        cache.read(np.array([record * ROWS]), filled)
    assert filled.asked == [0, 1, 2, 0]


def test_blocks_that_a_read_needs_are_not_pushed_out_by_it() -> None:
    cache, filled = BlockCache(LAYOUT, ROWS, 3, 6), Filled()
    for records in ((0, 1, 2), (3, 0), (3, 0, 4)):
        ids = np.array([record * ROWS for record in records])
        np.testing.assert_array_equal(cache.read(ids, filled)["id"], ids)
    assert filled.asked == [0, 1, 2, 3, 4]


def test_what_was_given_stays_when_its_block_goes() -> None:
    cache, filled = BlockCache(LAYOUT, ROWS, 1, 6), Filled()
    first = cache.read(np.arange(4), filled)
    cache.read(np.arange(4, 8), filled)
    assert first["id"].tolist() == [0, 1, 2, 3]
    first["id"][:] = 9
    assert cache.read(np.arange(4), filled)["id"].tolist() == [0, 1, 2, 3]


def test_a_failed_read_leaves_no_half_block() -> None:
    cache, filled = BlockCache(LAYOUT, ROWS, 2, 6), Filled()
    cache.read(np.array([20]), filled)

    def broken(records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        Filled()(records[:1], slots[:1], blocks)
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        cache.read(np.array([0, 4]), broken)
    np.testing.assert_array_equal(cache.read(np.array([5, 0]), filled)["id"], [5, 0])
    assert filled.asked == [5, 0, 1]


@pytest.mark.parametrize("given", [1, 2])
def test_blocks_whose_rows_were_all_given_make_room_first(given: int) -> None:
    cache, filled = BlockCache(LAYOUT, ROWS, 5, 6), Filled()
    window = np.arange(2 * ROWS)
    cache.read(window if given == 2 else window[:-1], filled)
    cache.read(window + 2 * ROWS, filled)
    filled.asked.clear()
    cache.read(np.array([0]), filled)  # still there, unless the second window took its room
    assert filled.asked == ([0] if given == 2 else [])


def test_a_window_that_shares_a_block_with_the_next_one_keeps_it() -> None:
    layout, asked = Layout.of({"id": Feature("int64")}), list[int]()
    cache = BlockCache(layout, 1, 300, 1000)

    def fill(records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        asked.extend(records.tolist())
        blocks["id"][slots, 0] = records

    cache.read(np.arange(99), fill)
    cache.read(np.arange(100), fill)
    for start in range(99, 900, 100):
        ids = np.arange(start, start + 101)
        np.testing.assert_array_equal(cache.read(ids, fill)["id"], ids)
    assert asked == list(range(1000))  # none a second time


class Windows:
    """1000 blocks of 4 rows in windows of 100 blocks, read a tenth of a window at a time; room for three windows.

    Attributes:
        asked: Blocks that were to be read.
    """

    def __init__(self) -> None:
        self.cache, self.asked = BlockCache(Layout.of({"id": Feature("int64")}), 4, 300, 1000), list[int]()

    def __call__(self, records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        self.asked.extend(records.tolist())
        blocks["id"][slots] = records[:, None] * 4 + np.arange(4)

    def read(self, first: int, end: int, share: float = 1.0) -> None:
        """Reads some windows, of each that share of its rows."""
        for blocks in np.split(np.random.default_rng(0).permutation(1000), 10)[first:end]:
            rows = np.random.default_rng(1).permutation((blocks[:, None] * 4 + np.arange(4)).ravel())
            for ids in np.split(rows, 10)[: round(10 * share)]:
                np.testing.assert_array_equal(self.cache.read(ids, self)["id"], ids)


def test_a_window_that_is_filled_bit_by_bit_is_read_once() -> None:
    windows = Windows()
    windows.read(0, 10)
    assert sorted(windows.asked) == list(range(1000))


def test_blocks_that_lie_far_from_a_window_are_read_again_with_it() -> None:
    windows = Windows()
    windows.read(0, 3, share=0.5)  # three rooms that are never spent
    windows.read(4, 7)
    windows.asked.clear()
    before = set(windows.cache._record_in[windows.cache._filled].tolist())
    lying = [r for r in windows.cache._record_in.tolist() if r >= 0 and r not in before][:30]
    absent = [r for r in range(1000) if r not in windows.cache._record_in.tolist()][:70]
    windows.cache.read(4 * np.array(lying + absent), windows)
    assert sorted(windows.asked) == sorted(lying + absent)
