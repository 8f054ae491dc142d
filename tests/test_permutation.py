from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError
from tasks.permutation import mix, permute, unpermute

SIZES = [1, 2, 3, 4, 5, 7, 64, 65, 1000, 16385, 65536, 65537, 262145]
PINNED_PERMUTATION = [6, 2, 3, 5, 4, 7, 8, 9, 1, 0]
PINNED_SEED = 11709167781544812270


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", [0, 42, 2**64 - 1])
def test_permute_is_a_bijection_with_an_inverse(size: int, seed: int) -> None:
    index = np.arange(size)
    shuffled = permute(index, size, seed)
    assert shuffled.dtype == np.int64
    np.testing.assert_array_equal(np.sort(shuffled), index)
    np.testing.assert_array_equal(unpermute(shuffled, size, seed), index)


def test_permute_is_stateless_and_keeps_the_shape() -> None:
    whole = permute(np.arange(1000), 1000, 7)
    assert permute(np.array([[3, 999], [0, 3]]), 1000, 7).tolist() == [[whole[3], whole[999]], [whole[0], whole[3]]]


@pytest.mark.parametrize("index", [[-1], [10]])
def test_permute_refuses_an_index_outside(index: list[int]) -> None:
    with pytest.raises(ParameterError, match=r"0 \.\.\. 9"):
        permute(np.array(index), 10, 0)


@pytest.mark.parametrize("size", [60_000, 65_537, 100_003])
def test_neighbours_are_uncorrelated(size: int) -> None:
    for seed in range(3):
        shuffled = permute(np.arange(size), size, mix(seed)).astype(float)
        for lag in (1, 2, 3, 16, 64, 128, 256, 512, 1024):
            correlation = np.corrcoef(shuffled[:-lag], shuffled[lag:])[0, 1]
            assert abs(correlation) < 5 / np.sqrt(size), (seed, lag)


def test_every_permutation_of_three_is_as_likely() -> None:
    seen = Counter(tuple(permute(np.arange(3), 3, seed).tolist()) for seed in range(3000))
    assert len(seen) == 6
    assert sum((n - 500) ** 2 / 500 for n in seen.values()) < 20.5  # chi squared, 5 degrees of freedom, p = 0.001


@pytest.mark.parametrize("number", [-1, 2**64])
def test_mix_takes_64_bits(number: int) -> None:
    with pytest.raises(ParameterError, match="64 bits"):
        mix(1, number)


def test_numbers_are_pinned() -> None:
    # A training that resumes tomorrow must see the order of today: whoever changes these changes `order.ALGORITHM`.
    assert permute(np.arange(10), 10, 0).tolist() == PINNED_PERMUTATION
    assert mix(42, 1) == PINNED_SEED


@pytest.mark.parametrize("size", [4, 1000, 65_536, 65_537, 1_000_003])
@pytest.mark.parametrize("change", [permute, unpermute])
def test_many_numbers_at_once_are_looked_up_and_few_computed_with_one_result(size: int, change: Any) -> None:
    at_once = change(np.arange(size), size, 9)
    some = np.random.default_rng(0).integers(0, size, 30)
    assert [int(change(np.array(i), size, 9)) for i in some] == at_once[some].tolist()


def test_halves_of_more_than_16_bits() -> None:
    size = 2**33 + 1  # as many bits as make a table of a half larger than one of 16 bits
    some = np.random.default_rng(0).integers(0, size, 1 << 18)
    shuffled = permute(some, size, 5)
    assert 0 <= shuffled.min() <= shuffled.max() < size
    assert shuffled[:3].tolist() == permute(some[:3], size, 5).tolist()
    np.testing.assert_array_equal(unpermute(shuffled, size, 5), some)
