from __future__ import annotations

import numpy as np
import pytest

from tasks.block_order import BlockOrder


@pytest.mark.parametrize(("size", "block"), [(1000, 16), (1008, 16), (1001, 7), (5, 7), (7, 7), (20, 1)])
def test_blocks_stay_whole_and_every_example_has_a_place(size: int, block: int) -> None:
    order = BlockOrder(size, block, seed=3)
    ids = order.ids(0, size)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(np.sort(ids), np.arange(size))
    starts = np.flatnonzero(np.r_[True, np.diff(ids) != 1])
    assert (ids[starts] % block == 0).all()  # a run of consecutive examples begins where a block does
    np.testing.assert_array_equal(order.positions(ids), np.arange(size))


@pytest.mark.parametrize("size", [1000, 1001, 1023])
def test_a_part_is_what_it_is_of_the_whole(size: int) -> None:
    order = BlockOrder(size, 16, seed=1)
    whole = order.ids(0, size)
    for start, stop in [(0, 1), (0, 100), (95, 97), (500, 800), (size - 1, size), (size - 90, size)]:
        np.testing.assert_array_equal(order.ids(start, stop), whole[start:stop])


def test_seeds_shuffle_blocks_and_the_short_one_moves_too() -> None:
    orders = [BlockOrder(103, 10, seed).ids(0, 103) for seed in range(20)]
    assert len({tuple(ids.tolist()) for ids in orders}) == 20
    assert len({int(np.flatnonzero(ids == 102)[0]) for ids in orders}) > 5
