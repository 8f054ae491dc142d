"""What a transform is, and what all of them share: see `datasets/transforms.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from datasets.errors import SchemaError
from datasets.schema import Feature

Values = dict[str, Any]
"""What was learned, as JSON."""
Function = Callable[..., Any]
"""From a column [rows, *shape] (of a SideBySide: the columns) and `xp` to the changed column."""


class Learner(Protocol):
    """What learns from one column of the train split, which may have to pass by more than once."""

    def add(self, column: np.ndarray) -> None:
        """Sees some rows, [rows, *shape]."""
        ...

    def end(self) -> Values | None:
        """Ends a pass: gives what was learned, or None to see all rows again."""
        ...


@runtime_checkable
class Transform(Protocol):
    """What `Dataset.transforms` holds; a frozen dataclass of your own in a file under `datasets/` works as well."""

    def learner(self, feature: Feature) -> Learner | None:
        """For a column of this feature; None if there is nothing to learn. Raises SchemaError if it can't be."""
        ...

    def gives(self, feature: Feature, values: Values) -> Feature:
        """What the changed column is."""
        ...

    def function(self, feature: Feature, values: Values) -> Function:
        """The change itself."""
        ...


def width_of(feature: Feature) -> int:
    """Columns or channels: how many statistics of each kind there are."""
    return feature.shape[-1] if feature.shape else 1


def along_last(values: Sequence[float], dtype: np.dtype, feature: Feature) -> np.ndarray:
    """Values that broadcast over [rows, *shape] along the last axis."""
    return np.array(values, dtype).reshape((1,) * len(feature.shape) + ((-1,) if feature.shape else (1,)))


def on_device(dtype: str) -> np.dtype:
    """64 bits are 32 in JAX."""
    made = np.dtype(dtype)
    return np.dtype(f"{made.kind}4") if made.itemsize == 8 else made


def as_on_device(column: Any, xp: Any) -> Any:  # noqa: ANN401
    """A column as the device has it: 64 bits become 32, if they can."""
    if xp is not np or column.dtype.itemsize < 8:
        return column
    narrow = column.astype(on_device(column.dtype.name))
    if column.dtype.kind in "iu" and (bad := narrow != column).any():
        raise SchemaError("a whole number doesn't fit into the device's 32 bits", got=int(column[bad].flat[0]))
    return narrow
