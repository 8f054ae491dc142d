from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from datasets.errors import ParameterError, PipelineError
from tasks.example_random import uniform
from tasks.order import Order
from tasks.permutation import mix

PINNED_IDS = [533, 496, 874, 458]
PINNED_BLOCKS = [[41, 201, 32, 533], [944, 631, 774, 373], [388, 736, 202, 751]]


def epoch_ids(order: Order, epoch: int) -> np.ndarray:
    first = epoch * order.steps_per_epoch
    return np.concatenate([order.ids(step)[1] for step in range(first, first + order.steps_per_epoch)])


def test_epochs_and_seeds_share_nothing() -> None:
    seeds = [
        mix(42, 1),
        mix(43, 0),
        mix(1, 42),
        mix(42),
        mix(42, 0),
        mix(42, 0, 0),
        mix(),
        mix(0),
        mix(42, 2),
        mix(44, 0),
    ]
    assert len(set(seeds)) == len(seeds)
    late = Order(10_000, 10, 42).ids(1000)
    early = Order(10_000, 10, 43).ids(0)
    assert (late[0], early[0]) == (1, 0)
    equal = [epoch_ids(Order(10_000, 100, 42), 1) == epoch_ids(Order(10_000, 100, 43), 0)]
    assert np.sum(equal) < 10  # 1 is expected of unrelated permutations
    ids = np.arange(10_000)
    assert np.mean(uniform(42, 1, ids, 1) == uniform(43, 0, ids, 1)) < 1e-3
    assert abs(np.corrcoef(uniform(42, 1, ids, 1)[:, 0], uniform(43, 0, ids, 1)[:, 0])[0, 1]) < 0.05


def test_order_is_pinned() -> None:
    # A training that resumes tomorrow must see the order of today: whoever changes these numbers changes ALGORITHM.
    assert Order(1000, 4, 42).ids(300)[1].tolist() == PINNED_IDS
    blocks = Order(1001, 4, 42, block=16, window=128)
    assert [blocks.ids(step)[1].tolist() for step in (0, 33, 300)] == PINNED_BLOCKS


@pytest.mark.parametrize(("size", "batch_size", "steps"), [(22, 4, 5), (23, 4, 5), (24, 4, 6), (4, 4, 1), (5, 1, 5)])
def test_one_rule_for_steps_epochs_and_total(size: int, batch_size: int, steps: int) -> None:
    order = Order(size, batch_size, seed=3)
    assert order.steps_per_epoch == steps
    assert order.total_steps(2) == 2 * steps
    assert [order.epoch(step) for step in range(order.total_steps(2))] == [0] * steps + [1] * steps
    for epoch in range(3):
        ids = epoch_ids(order, epoch)
        assert len(set(ids.tolist())) == steps * batch_size
        assert [order.ids(step)[0] for step in (epoch * steps, epoch * steps + steps - 1)] == [epoch, epoch]


def test_the_dropped_remainder_changes_each_epoch() -> None:
    order = Order(22, 4, seed=0)
    dropped = [frozenset(range(22)) - set(epoch_ids(order, epoch).tolist()) for epoch in range(40)]
    assert {len(d) for d in dropped} == {2}
    assert len(set(dropped)) > 20
    assert set().union(*dropped) == set(range(22))


def test_without_shuffling_examples_come_as_stored() -> None:
    order = Order(10, 3, seed=0, shuffle=False)
    assert [order.ids(step)[1].tolist() for step in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 2]]


@pytest.mark.parametrize("block", [None, 7])
@pytest.mark.parametrize("readers", [2, 3, 4, 10])
def test_readers_interleave_to_what_one_reads(readers: int, block: int | None) -> None:
    one = Order(103, 10, seed=5, block=block, window=30)
    many = [Order(103, 10, seed=5, reader=r, readers=readers, block=block, window=30) for r in range(readers)]
    for step in range(one.total_steps(2)):
        shares = [order.ids(step)[1] for order in many]
        np.testing.assert_array_equal(np.concatenate(shares), one.ids(step)[1])
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert [len(s) for s in shares] == [o.share.stop - o.share.start for o in many]


def test_resumed_with_another_number_of_readers_nothing_is_lost_or_repeated() -> None:
    def read(readers: int, steps: range) -> list[int]:
        orders = [Order(101, 8, seed=1, reader=r, readers=readers) for r in range(readers)]
        return [int(i) for step in steps for order in orders for i in order.ids(step)[1]]

    whole = read(1, range(12))
    assert read(2, range(5)) + read(3, range(5, 9)) + read(1, range(9, 12)) == whole
    assert len(set(whole)) == 96


@pytest.mark.parametrize("window", [1, 3, 10, 1000])
def test_the_window_of_a_global_shuffle_changes_nothing(window: int) -> None:
    whole, windowed = Order(1000, 7, seed=2), Order(1000, 7, seed=2, window=window)
    for step in [*range(20), 141, 142, 143, 400]:
        np.testing.assert_array_equal(whole.ids(step)[1], windowed.ids(step)[1])


@pytest.mark.parametrize("size", [1000, 1008, 1001, 1023])
@pytest.mark.parametrize(("block", "window"), [(16, 128), (7, 100), (1000, 64), (1, 50)])
def test_block_order_is_a_bijection_within_its_window(size: int, block: int, window: int) -> None:
    order = Order(size, 1, seed=9, block=block, window=window)
    for epoch in range(2):
        ids = epoch_ids(order, epoch)
        np.testing.assert_array_equal(np.sort(ids), np.arange(size))
        for start in range(0, size, window):
            touched = len(np.unique(ids[start : start + window] // block))
            assert touched <= window // block + 3  # whole ones, one cut at each end, and the short one
    assert not np.array_equal(epoch_ids(order, 0), epoch_ids(order, 1))


def test_block_order_mixes_within_the_window() -> None:
    ids = epoch_ids(Order(10_000, 10, seed=0, block=50, window=1000), 0)
    assert abs(np.corrcoef(ids[:-1] % 50, ids[1:] % 50)[0, 1]) < 0.05
    assert np.mean(np.diff(ids) == 1) < 0.01
    blocks = ids[::1000] // 50
    assert abs(np.corrcoef(np.arange(len(blocks)), blocks)[0, 1]) < 0.9


def test_batch_size_only_cuts_the_sequence() -> None:
    for block in (None, 16):
        small, large = Order(1000, 10, 4, block=block, window=100), Order(1000, 250, 4, block=block, window=100)
        np.testing.assert_array_equal(epoch_ids(small, 0), epoch_ids(large, 0))


@pytest.mark.parametrize(
    "order", [Order(103, 10, 7), Order(103, 10, 7, block=16, window=40), Order(103, 10, 7, shuffle=False)]
)
def test_steps_of_is_the_reverse_of_ids(order: Order) -> None:
    seen: dict[int, list[tuple[int, int]]] = {example: [] for example in range(103)}
    for step in range(order.total_steps(3)):
        for slot, example in enumerate(order.ids(step)[1].tolist()):
            seen[example].append((step, slot))
    assert {example: order.steps_of(example, 3) for example in range(103)} == seen
    assert min(map(len, seen.values())) < 3  # some example fell into a dropped remainder


def test_identity_is_json_and_says_what_decides_the_order() -> None:
    base = Order(100, 10, 1)
    assert json.loads(json.dumps(base.identity)) == base.identity
    assert Order(100, 10, 1, reader=1, readers=2, window=5).identity == base.identity
    others = [Order(101, 10, 1), Order(100, 9, 1), Order(100, 10, 2), Order(100, 10, 1, shuffle=False),
              Order(100, 10, 1, block=5), Order(100, 10, 1, block=5, window=50)]  # fmt: skip
    assert len({json.dumps(o.identity) for o in [base, *others]}) == 7


def test_a_pickled_order_is_small_and_equal() -> None:
    order = Order(100_000, 10, 1)
    order.ids(0)
    copy = pickle.dumps(order)
    assert len(copy) < 2000
    assert pickle.loads(copy) == order
    np.testing.assert_array_equal(pickle.loads(copy).ids(77)[1], order.ids(77)[1])


@pytest.mark.parametrize("readers", [1, 3])
def test_several_steps_are_those_steps_up_to_the_end_of_the_epoch(readers: int) -> None:
    order = Order(103, 10, seed=1, reader=readers - 1, readers=readers)
    for step, count, steps in ((0, 4, 4), (7, 4, 3), (10, 1, 1), (19, 5, 1)):
        epoch, ids = order.ids_of_several(step, count)
        assert epoch == order.epoch(step)
        np.testing.assert_array_equal(ids, np.concatenate([order.ids(step + i)[1] for i in range(steps)]))


@pytest.mark.parametrize("block", [None, 5])
def test_ids_cannot_be_changed_for_those_who_ask_next(block: int | None) -> None:
    order = Order(100, 10, 1, block=block)
    with pytest.raises(ValueError, match="read-only"):
        order.ids(0)[1][:] = 0
    assert len(set(order.ids(0)[1].tolist())) == 10


def test_fewer_examples_than_a_batch() -> None:
    with pytest.raises(PipelineError, match=r"3 records < batch size 4: 0 steps"):
        Order(3, 4, seed=0)


@pytest.mark.parametrize(
    "values",
    [
        {"batch_size": 0}, {"batch_size": 2.0}, {"seed": -1}, {"seed": True}, {"reader": 1}, {"readers": 0},
        {"readers": 11}, {"window": 0}, {"block": 0}, {"size": "10"},
    ],
)  # fmt: skip
def test_values_that_cannot_work(values: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Order(**{"size": 100, "batch_size": 10, "seed": 0} | values)  # type: ignore[arg-type]


def test_no_such_step_or_example() -> None:
    with pytest.raises(ParameterError, match="step"):
        Order(10, 2, 0).ids(-1)
    with pytest.raises(ParameterError, match=r"0 \.\.\. 9"):
        Order(10, 2, 0).steps_of(10, 1)


# --- the remainder


@pytest.mark.parametrize("readers", [1, 2, 3, 4])
def test_a_kept_remainder_is_a_last_short_batch_of_every_epoch(readers: int) -> None:
    orders = [Order(22, 4, 7, drop_remainder=False, reader=r, readers=readers) for r in range(readers)]
    assert (orders[0].steps_per_epoch, orders[0].total_steps(2)) == (6, 12)
    for epoch in range(2):
        parts = [np.concatenate([o.ids(s)[1] for o in orders]) for s in range(6 * epoch, 6 * epoch + 6)]
        assert [len(part) for part in parts] == [4, 4, 4, 4, 4, 2]
        assert sorted(np.concatenate(parts).tolist()) == list(range(22))
        assert {o.ids(6 * epoch)[0] for o in orders} == {epoch}


def test_full_batches_are_the_same_whether_the_remainder_is_kept_or_not() -> None:
    kept, dropped = Order(22, 4, 7, drop_remainder=False), Order(22, 4, 7)
    for epoch in range(3):
        for place in range(5):
            np.testing.assert_array_equal(kept.ids(6 * epoch + place)[1], dropped.ids(5 * epoch + place)[1])
    assert dropped.identity.keys() == kept.identity.keys() - {"drop_remainder"}


def test_steps_of_an_example_with_a_kept_remainder() -> None:
    order = Order(22, 4, 7, drop_remainder=False)
    for example in range(22):
        seen = order.steps_of(example, 3)
        assert [step // 6 for step, _ in seen] == [0, 1, 2]
        assert all(order.ids(step)[1][slot] == example for step, slot in seen)


def test_fewer_examples_than_a_batch_are_one_short_batch_if_kept() -> None:
    assert Order(3, 4, 0, drop_remainder=False).steps_per_epoch == 1
    with pytest.raises(PipelineError):
        Order(0, 4, 0, drop_remainder=False)
    with pytest.raises(PipelineError, match="3 records < batch size 4"):
        Order(3, 4, 0)


class Third:
    shard_index, shard_count = 2, 3


def test_a_share_by_shard_options() -> None:
    order = Order(22, 6, 7).shared(Third())
    assert (order.reader, order.readers) == (2, 3)
    np.testing.assert_array_equal(order.ids(1)[1], Order(22, 6, 7).ids(1)[1][4:])
