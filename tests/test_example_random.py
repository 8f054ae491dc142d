from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError
from tasks.example_random import ExampleRandom, uniform

IDS = np.arange(4000)
PINNED_DRAWS = [[0.1509917974472046, 0.30166274309158325], [0.2775259017944336, 0.24045395851135254]]


def draws(ids: np.ndarray = IDS, seed: int = 1, epoch: int = 2, place: int = 0) -> list[np.ndarray]:
    random = ExampleRandom(seed, epoch, ids, place)
    return [
        random.random((3,)), random.uniform(-2, 4), random.integers(5, 9, (2, 2)), random.normal(10, 2),
        random.random(),
    ]  # fmt: skip


def test_shapes_dtypes_and_ranges() -> None:
    plain, between, whole, normal, scalar = draws()
    assert [x.shape for x in (plain, between, whole, normal, scalar)] == [
        (4000, 3),
        (4000,),
        (4000, 2, 2),
        (4000,),
        (4000,),
    ]
    assert [x.dtype.name for x in (plain, between, whole, normal)] == ["float32", "float32", "int64", "float32"]
    assert 0 <= plain.min() < 0.01
    assert 0.99 < plain.max() < 1
    assert -2 <= between.min() < -1.9
    assert 3.9 < between.max() <= 4
    assert sorted(set(whole.ravel().tolist())) == [5, 6, 7, 8]
    assert abs(normal.mean() - 10) < 0.15
    assert abs(normal.std() - 2) < 0.1


def test_an_example_draws_the_same_in_any_batch_and_slot() -> None:
    some = np.array([3999, 17, 17, 250])
    for whole, part in zip(draws(), draws(some), strict=True):
        np.testing.assert_array_equal(whole[some], part)


def test_a_size_may_be_a_number_and_a_range_its_end_as_numpys() -> None:
    for name, given in {"random": (), "uniform": (0, 1), "integers": (0, 5), "normal": (0, 1)}.items():
        by_number, by_tuple = (getattr(ExampleRandom(1, 2, IDS, 0), name)(*given, size=size) for size in (3, (3,)))
        assert by_number.shape == (4000, 3)
        np.testing.assert_array_equal(by_number, by_tuple)
    below, between = ExampleRandom(1, 2, IDS, 0).integers(5), ExampleRandom(1, 2, IDS, 0).integers(0, 5)
    np.testing.assert_array_equal(below, between)


@pytest.mark.parametrize("other", [{"seed": 2}, {"epoch": 3}, {"place": 1}])
def test_seed_epoch_and_place_each_give_other_numbers(other: dict[str, Any]) -> None:
    for one, two in zip(draws(), draws(**other), strict=True):
        assert (one != two).mean() > 0.5


def test_calls_are_unrelated_to_each_other_and_to_augmentations() -> None:
    random = ExampleRandom(1, 2, IDS, 0)
    streams = [random.random(), random.random(), uniform(1, 2, IDS, 1)[:, 0], uniform(1, 2, IDS, 2)[:, 1]]
    correlation = np.corrcoef(streams) - np.eye(4)
    assert np.abs(correlation).max() < 0.06


@pytest.mark.parametrize(("low", "high"), [(3, 3), (4, 3), (0, 2**24 + 1)])
def test_ranges_that_cannot_be_drawn_from(low: int, high: int) -> None:
    with pytest.raises(ParameterError, match="no such range"):
        ExampleRandom(0, 0, IDS, 0).integers(low, high)


def test_draws_are_pinned() -> None:
    # As the order: a resumed training must see what it would have seen.
    assert uniform(1, 2, np.array([0, 12345]), 2).tolist() == PINNED_DRAWS


def test_uniform_depends_on_the_example_alone() -> None:
    ids = np.array([5, 900, 17, 3])
    together = uniform(3, 1, ids, 4)
    assert together.shape == (4, 4)
    assert together.dtype == np.float32
    for row, example in enumerate(ids):
        np.testing.assert_array_equal(uniform(3, 1, np.array([example]), 4)[0], together[row])
    assert not np.array_equal(uniform(3, 2, ids, 4), together)
    assert not np.array_equal(uniform(4, 1, ids, 4), together)


def test_uniform_is_uniform() -> None:
    draws = uniform(0, 0, np.arange(50_000), 3)
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.stack([np.histogram(draws[:, k], bins=20, range=(0, 1))[0] for k in range(3)])
    assert ((counts - 2500) ** 2 / 2500).sum(1).max() < 45  # chi squared, 19 degrees of freedom, p < 0.001
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.02
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.02
