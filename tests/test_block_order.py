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


@pytest.mark.parametrize("size", [1000, 1008, 70_000])
@pytest.mark.parametrize("seed", range(4))  # where the short block lies
def test_a_stretch_knows_its_examples_in_any_order(size: int, seed: int) -> None:
    order, random = BlockOrder(size, 16, seed), np.random.default_rng(seed)
    whole = order.ids(0, size)
    for start, stop in [(0, size), (5, size - 3), (size // 2 - 7, size)]:
        stretch = order.stretch(start, stop)
        length = min(stop - start, 1 << 16)
        inside = random.permutation(length).astype(np.uint16)  # whose sum with a place in a block may need more bits
        np.testing.assert_array_equal(stretch.ids(inside), whole[start : start + length][inside])


def test_blocks_too_many_to_keep_their_order_lie_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = BlockOrder(1003, 4, 9).ids(100, 900)
    monkeypatch.setattr("tasks.block_order._MOST_SHUFFLED", 10)
    np.testing.assert_array_equal(BlockOrder(1003, 4, 9).ids(100, 900), kept)
