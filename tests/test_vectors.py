from __future__ import annotations

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.schema import Block
from datasets.vectors import one_hot, side_by_side, standardised


def test_classes_become_zeros_and_ones() -> None:
    made = one_hot(Block({"colour": np.array([2, 0], np.int32)}, "a.csv", 0), "colour", 3)
    assert made.dtype == np.float32
    assert made.tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_that_is_no_class_is_named(bad: int) -> None:
    block = Block({"colour": np.array([2, bad, bad], np.int32)}, "a.csv", 10)
    with pytest.raises(SchemaError, match="'colour'") as caught:
        one_hot(block, "colour", 3)
    assert (caught.value.facts["file"], caught.value.facts["row"], caught.value.facts["got"]) == ("a.csv", 11, bad)


def test_values_are_standardised_column_by_column() -> None:
    values = np.array([[1.0, 10.0], [3.0, 30.0]], np.float64)
    made = standardised(values, (2.0, 10.0), (0.5, 20.0))
    assert made.dtype == np.float32
    assert made.tolist() == [[-2, 0], [2, 1]]
    assert standardised(np.array([1, 2], np.int32), 1, 2).tolist() == [[0], [0.5]]


def test_parts_stand_side_by_side() -> None:
    made = side_by_side(np.array([1, 2], np.int64), np.ones((2, 2, 1), np.uint8))
    assert made.dtype == np.float32
    assert made.tolist() == [[1, 1, 1], [2, 1, 1]]
