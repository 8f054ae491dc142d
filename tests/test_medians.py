from __future__ import annotations

import statistics

import numpy as np
import pytest

from datasets.medians import Median, numbers, ordered

RANDOM = np.random.default_rng(0)
COLUMNS = {
    "float32": np.concatenate([RANDOM.normal(0, 1e3, 501), [-0.0, 0.0, 1e-45, -3e38, 3e38]]).astype(np.float32),
    "int32": RANDOM.integers(-(2**31), 2**31, 500).astype(np.int32),
    "uint8": RANDOM.integers(0, 256, 500).astype(np.uint8),
    "uint32": RANDOM.integers(0, 2**32, 501).astype(np.uint32),
}


def median(columns: list[np.ndarray], cut: int) -> np.ndarray:
    found, made = Median(len(columns), columns[0].dtype), None
    for passing in range(2):
        for i, column in enumerate(columns):
            for start in range(0, len(column), cut):
                found.add(i, column[start : start + cut])
        made = found.end()
        assert (made is None) == (passing == 0)
    assert made is not None
    return made


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_it_is_the_lower_median_of_each_column(name: str, cut: int) -> None:
    column = COLUMNS[name]
    made = median([column, column[:7][::-1], np.repeat(column[:1], 4)], cut)
    assert made.dtype == column.dtype
    expected = [statistics.median_low(part.tolist()) for part in (column, column[:7], column[:1])]
    assert made.tolist() == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_keys_are_in_order_and_lead_back(name: str) -> None:
    column = np.sort(COLUMNS[name])
    keys = ordered(column)
    assert (np.diff(keys.astype(np.int64)) >= 0).all()
    np.testing.assert_array_equal(numbers(keys, column.dtype), column)


def test_a_column_without_values_has_none() -> None:
    found = Median(2, np.dtype("float32"))
    found.add(0, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="component 1"):
        found.end()
