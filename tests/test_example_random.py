from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError
from tasks.example_random import ExampleRandom
from tasks.order import uniform

IDS = np.arange(4000)


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
