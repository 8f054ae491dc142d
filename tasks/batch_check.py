"""The check of every batch on the host, before it goes to the device: plain NumPy, a few microseconds.

Neither `python -O` nor `chex.disable_asserts()` switches it off. Where a batch is wrong in its structure (keys, kind of
array, shape, dtype) the error is a ContractError: a fault in the program. Where a value is wrong (NaN, a label out of
range) it is a SchemaError: a fault in the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets.errors import ContractError, SchemaError
from datasets.schema import Columns, Feature, in_batches
from tasks.contracts import described, device_dtype, structure_error

Ids = Sequence[object] | np.ndarray

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by bytes


class BatchCheck:
    """The check of batches of one kind.

    Args:
        features: What a batch holds, no more and no fewer; those of varying lengths are in no batch.
        batch_size: Rows of every column.
    """

    def __init__(self, features: Mapping[str, Feature], batch_size: int) -> None:
        self._columns = [
            _Column(name, feature, (batch_size, *feature.shape), np.dtype(feature.dtype), *_limits(feature))
            for name, feature in in_batches(features).items()
        ]
        self._names = {column.name for column in self._columns}

    def __call__(self, batch: Columns, step: int | None = None, ids: Callable[[], Ids] | None = None) -> None:
        """Checks a batch.

        Args:
            batch: One array a feature, [batch_size, *feature.shape], of exactly the feature's dtype.
            step: For the message only.
            ids: Gives the id of the record in each row; asked only for a message.

        Raises:
            ContractError: The keys, the kind of a column (a list isn't an array), a shape or a dtype is another.
            SchemaError: A value is NaN, infinite, outside the feature's bounds, or doesn't fit the device's 32 bits.
        """
        if batch.keys() != self._names:
            raise ContractError(
                "the batch has other columns than the dataset states",
                step=step, got=", ".join(sorted(map(str, batch))), expected=", ".join(sorted(self._names)),
                missing=", ".join(sorted(self._names - batch.keys())) or None,
                unknown=", ".join(sorted(map(str, batch.keys() - self._names))) or None,
            )  # fmt: skip
        for column in self._columns:
            values = batch[column.name]
            if not isinstance(values, np.ndarray):
                raise ContractError(
                    f"column {column.name!r} isn't a NumPy array", step=step, field=column.name,
                    got=type(values).__name__, expected=described(column.dtype, column.shape),
                    cure="np.asarray(column, dtype) where the batch is made: a list is another input to a compiled "
                    "step",
                )  # fmt: skip
            if values.shape != column.shape or values.dtype != column.dtype:
                raise structure_error("the batch", column.name, values, column.shape, column.dtype, step)
            if not column.sound(values) and (row := column.first_bad_row(values)) is not None:
                raise column.bad_value(values, row, step, None if ids is None else ids()[row])


@dataclass(frozen=True)
class _Column:
    """One column of a batch, with the bounds that its dtype itself doesn't give."""

    name: str
    feature: Feature
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float | None
    high: float | None

    def sound(self, values: np.ndarray) -> bool:
        """The fast look; False may still be a false alarm."""
        low, high = self.low, self.high
        if self.dtype.kind != "f":
            if low == 0 and high is not None:  # a number below 0 is a great one without its sign: one look for both
                return bool(np.maximum.reduce(values.view(_UNSIGNED[values.itemsize]), axis=None) <= high)
            return (low is None or values.min() >= low) and (high is None or values.max() <= high)
        if low is None and high is None:
            # The sum of huge finite values overflows too, so a bad sum only asks for the slow look. It isn't np.dot,
            # although that is faster: BLAS starts threads, and they take the cores from XLA's.
            with np.errstate(over="ignore", invalid="ignore"):
                return bool(np.isfinite(values.sum()))
        least, greatest = values.min(), values.max()  # both are NaN where there is a NaN
        return bool(
            (least >= (-np.inf if low is None else low))
            and (greatest <= (np.inf if high is None else high))
            and np.isfinite(least) and np.isfinite(greatest)
        )  # fmt: skip

    def first_bad_row(self, values: np.ndarray) -> int | None:
        """The slow look, exact."""
        rows = np.flatnonzero(_bad(values, self.low, self.high).reshape(len(values), -1).any(axis=1))
        return int(rows[0]) if len(rows) else None

    def bad_value(self, values: np.ndarray, row: int, step: int | None, record: object) -> SchemaError:
        """The error about the first bad value of a row."""
        low, high, feature = self.low, self.high, self.feature
        cell = values[row].reshape(-1)
        value = cell[int(np.flatnonzero(_bad(cell, low, high))[0])].item()
        count = int(_bad(values, low, high).reshape(len(values), -1).any(axis=1).sum())
        expected = "finite values" if low is None and high is None else f"{low} <= {self.name} <= {high}"
        cure = None
        if feature.classes and value == len(feature.classes) and values.min() >= 1:
            cure = "labels seem to start at 1: subtract 1 in the dataset's reader"
        elif device_dtype(feature.dtype) != self.dtype and feature.bounds == (None, None):
            cure = f"{feature.dtype} becomes {device_dtype(feature.dtype)} on the device: rescale it in the reader"
            cure += '; an id that only decides splits can be Feature("uint8", (8,))' if values.ndim == 1 else ""
        return SchemaError(
            f"column {self.name!r} has a bad value", step=step, field=self.name, row=row,
            record=record.item() if isinstance(record, np.generic) else record, got=value, expected=expected,
            found=f"{values.min()} ... {values.max()}, {count} bad rows of {len(values)}", cure=cure,
        )  # fmt: skip


def _bad(values: np.ndarray, low: float | None, high: float | None) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(values)
        bad |= False if low is None else values < low
        bad |= False if high is None else values > high
    return bad


def _limits(feature: Feature) -> tuple[float | None, float | None]:
    """Bounds that the dtype itself doesn't give: those of the feature and those of the device's narrower dtype."""
    low, high = feature.bounds
    dtype, on_device = np.dtype(feature.dtype), device_dtype(feature.dtype)
    if dtype.kind == "b":
        return None, None
    info = np.iinfo if dtype.kind in "iu" else np.finfo
    own = info(dtype)
    if on_device.itemsize < dtype.itemsize:
        device = info(on_device)
        low = float(device.min) if low is None else max(low, float(device.min))
        high = float(device.max) if high is None else min(high, float(device.max))
    if dtype.kind in "iu":
        low = None if low is None or low <= own.min else low
        high = None if high is None or high >= own.max else high
    return low, high
