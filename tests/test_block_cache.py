from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from datasets.schema import Columns, Feature
from tasks.block_cache import BlockCache
from tasks.record_layout import Layout

LAYOUT = Layout.of({"x": Feature("uint8", (3,)), "id": Feature("int64")})
ROWS, SIZE = 4, 22  # the last of six blocks is short


class Decoded:
    """Gives blocks and notes which ones were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, records: np.ndarray) -> Iterator[Columns]:
        assert (np.diff(records) > 0).all()
        for record in records.tolist():
            self.asked.append(record)
            ids = np.arange(record * ROWS, min(SIZE, record * ROWS + ROWS))
            yield {"id": ids[None], "x": (ids[None, :, None] + [0, 1, 2]).astype(np.uint8)}


@pytest.mark.parametrize("slots", [1, 2, 3, 6, 100])
def test_rows_come_in_the_order_asked_for_whatever_the_room(slots: int) -> None:
    cache, decoded, random = BlockCache(LAYOUT, ROWS, slots, 6), Decoded(), np.random.default_rng(0)
    for _ in range(60):
        ids = random.integers(0, SIZE, random.integers(1, 9))
        rows = cache.read(ids, decoded)
        np.testing.assert_array_equal(rows["id"], ids)
        np.testing.assert_array_equal(rows["x"], (ids[:, None] + [0, 1, 2]).astype(np.uint8))
        assert rows["x"].dtype == np.uint8


def test_blocks_of_one_length_may_come_together() -> None:
    def together(records: np.ndarray) -> Iterator[Columns]:
        whole = records[records < SIZE // ROWS]
        ids = whole[:, None] * ROWS + np.arange(ROWS)
        yield {"id": ids, "x": (ids[..., None] + [0, 1, 2]).astype(np.uint8)}
        if len(whole) < len(records):
            yield from Decoded()(records[-1:])

    cache = BlockCache(LAYOUT, ROWS, 4, 6)
    for asked in ([0, 4, 8, 21], [12, 1, 20], [5, 9, 13, 21, 0]):
        rows = cache.read(np.array(asked), together)
        assert rows["id"].tolist() == asked
        np.testing.assert_array_equal(rows["x"], (np.array(asked)[:, None] + [0, 1, 2]).astype(np.uint8))


def test_a_block_that_is_there_is_not_read_again_and_the_oldest_goes_first() -> None:
    cache, decoded = BlockCache(LAYOUT, ROWS, 2, 6), Decoded()
    for record in (0, 1, 0, 1, 2, 1, 0):
        cache.read(np.array([record * ROWS]), decoded)
    assert decoded.asked == [0, 1, 2, 0]


def test_blocks_that_a_read_needs_are_not_pushed_out_by_it() -> None:
    cache, decoded = BlockCache(LAYOUT, ROWS, 3, 6), Decoded()
    for records in ((0, 1, 2), (3, 0), (3, 0, 4)):
        ids = np.array([record * ROWS for record in records])
        np.testing.assert_array_equal(cache.read(ids, decoded)["id"], ids)
    assert decoded.asked == [0, 1, 2, 3, 4]


def test_what_was_given_stays_when_its_block_goes() -> None:
    cache, decoded = BlockCache(LAYOUT, ROWS, 1, 6), Decoded()
    first = cache.read(np.arange(4), decoded)
    cache.read(np.arange(4, 8), decoded)
    assert first["id"].tolist() == [0, 1, 2, 3]
    first["id"][:] = 9
    assert cache.read(np.arange(4), decoded)["id"].tolist() == [0, 1, 2, 3]


def test_a_failed_read_leaves_no_half_block() -> None:
    cache = BlockCache(LAYOUT, ROWS, 2, 6)

    def broken(records: np.ndarray) -> Iterator[Columns]:
        yield next(Decoded()(records))
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        cache.read(np.array([0, 4]), broken)
    decoded = Decoded()
    np.testing.assert_array_equal(cache.read(np.array([5, 0]), decoded)["id"], [5, 0])
    assert decoded.asked == [1]
