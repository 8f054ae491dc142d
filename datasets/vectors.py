"""Columns of a table as the numbers that a model takes: classes one-hot, values standardised, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.errors import SchemaError
from datasets.schema import Block


def one_hot(block: Block, name: str, classes: int) -> np.ndarray:
    """A column of class indices as zeros and ones, float32 [rows, classes].

    Raises:
        SchemaError: An index is no class; names the raw file and row.
    """
    index = block.columns[name].reshape(-1)
    bad = np.flatnonzero((index < 0) | (index >= classes))
    if bad.size:
        raise SchemaError(
            f"column {name!r} holds an index that is no class", file=block.file, row=block.row + int(bad[0]),
            field=name, got=int(index[bad[0]]), expected=f"0 to {classes - 1}",
            count=f"{bad.size} of {len(index)} rows",
        )  # fmt: skip
    return np.eye(classes, dtype=np.float32)[index]


def standardised(values: np.ndarray, mean: float | Sequence[float], scale: float | Sequence[float]) -> np.ndarray:
    """Values with a stated mean taken off, divided by a stated scale: float32 [rows, columns].

    Args:
        values: Numbers, [rows] or [rows, columns].
        mean: Of all columns, or one a column.
        scale: As `mean`; above 0.
    """
    columns = values.reshape(len(values), -1)
    return ((columns - np.asarray(mean, np.float32)) / np.asarray(scale, np.float32)).astype(np.float32)


def side_by_side(*parts: np.ndarray) -> np.ndarray:
    """Columns in one array, float32 [rows, columns of all parts]."""
    return np.concatenate([part.reshape(len(part), -1).astype(np.float32) for part in parts], axis=1)
