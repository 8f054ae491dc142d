"""Batches that are filled up; the step itself is tested in test_step.py."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.errors import ContractError
from tasks.eval_step import MASK, pad_batch


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_batch_is_filled_up_with_its_last_row(rows: int) -> None:
    padded = pad_batch({"x": np.arange(rows * 2).reshape(rows, 2)}, 4)
    assert padded[MASK].tolist() == [True] * rows + [False] * (4 - rows)
    np.testing.assert_array_equal(padded["x"][:rows], np.arange(rows * 2).reshape(rows, 2))
    assert (padded["x"][rows:] == padded["x"][rows - 1]).all()


@pytest.mark.parametrize(
    "batch", [{}, {"x": np.zeros((0, 2))}, {"x": np.zeros((5, 2))}, {"x": np.zeros(2), "y": np.zeros(3)}]
)
def test_what_can_not_be_filled_up(batch: dict[str, np.ndarray]) -> None:
    with pytest.raises(ContractError, match="can't be filled up"):
        pad_batch(batch, 4)
