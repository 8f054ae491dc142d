"""Checks the rows of a split block by block against what the dataset states, and sums them up.

Shapes and dtypes are Chex contracts, with plain comparisons of our own behind them; values (label range, bounds,
finiteness) are checked by us alone, so neither `python -O` nor `chex.disable_asserts()` lets a bad record pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.ragged import Ragged
from datasets.schema import Columns, Feature
from tasks.dealing import origin_of
from tasks.quarantine import bad_rows, first_bad
from tasks.statistics import FeatureStatistics


class SplitSummary:
    """Checks the blocks of one split and sums them up.

    Args:
        split: Its name.
        features: What its columns must be.
        origin: Runs of raw rows that the blocks came from, see `tasks.convert`.
        first: Number of the first row that it gets, in the split.
    """

    def __init__(
        self, split: str, features: Mapping[str, Feature], origin: list[list[Any]], first: int = 0
    ) -> None:  # fmt: skip
        self.split, self.features, self.origin, self.first = split, features, origin, first
        self.rows = self.block_rows = 0
        self.statistics = {name: FeatureStatistics(feature, first) for name, feature in features.items()}
        self._counts = {name: np.zeros(len(f.classes), np.int64) for name, f in features.items() if f.classes}

    def add(self, columns: Columns) -> None:
        """Checks one block and adds it to the summary.

        Raises:
            SchemaError: Its columns, shapes, dtypes or values don't fit the features.
        """
        if columns.keys() != self.features.keys():
            raise SchemaError(
                "columns differ", split=self.split, got=", ".join(columns), expected=", ".join(self.features)
            )
        self.block_rows = len(next(iter(columns.values())))
        for name, feature in self.features.items():
            self._check_layout(name, columns[name], feature)
            self._check_values(name, columns[name], feature)
            self.statistics[name].add(columns[name])
            if feature.classes:
                self._counts[name] += np.bincount(
                    columns[name].reshape(-1).astype(np.int64), minlength=len(feature.classes)
                )
        self.rows += self.block_rows

    def merge(self, later: SplitSummary) -> None:
        """Adds the summary of the rows that come next."""
        for name, one in self.statistics.items():
            one.merge(later.statistics[name])
        for name, counts in self._counts.items():
            counts += later._counts[name]
        self.rows += later.rows

    def _check_layout(self, name: str, column: np.ndarray | Ragged, feature: Feature) -> None:
        import chex

        expected = (self.block_rows, *feature.shape)
        if isinstance(column, Ragged):
            if not feature.varies or len(column) != self.block_rows or column.dtype != feature.dtype:
                raise self._layout_error(name, column, feature)
            return
        try:
            chex.assert_shape(column, expected)
            chex.assert_type(column, np.dtype(feature.dtype))
        except AssertionError as error:
            raise self._layout_error(name, column, feature) from error
        if column.shape != expected or column.dtype != np.dtype(feature.dtype):  # Chex can be switched off
            raise self._layout_error(name, column, feature)

    def _layout_error(self, name: str, column: np.ndarray | Ragged, feature: Feature) -> SchemaError:
        shape = [len(column), None] if isinstance(column, Ragged) else list(column.shape)
        return SchemaError(
            "a column doesn't have the stated layout", split=self.split, field=name,
            got=f"{column.dtype}{shape}", expected=f"{feature.dtype}{[self.block_rows, *feature.shape]}",
        )  # fmt: skip

    def _check_values(self, name: str, column: np.ndarray | Ragged, feature: Feature) -> None:
        rows = bad_rows(column, feature)
        if len(rows):
            raise self._value_error(name, column, feature, rows)

    def _value_error(
        self, name: str, column: np.ndarray | Ragged, feature: Feature, rows: np.ndarray
    ) -> SchemaError:  # fmt: skip
        low, high = feature.bounds
        first = int(rows[0])
        file, row = origin_of(self.origin, self.rows + first)
        values = column.values if isinstance(column, Ragged) else column
        starts_at_1 = bool(feature.classes) and values.min() == 1 and values.max() == len(feature.classes)
        return SchemaError(
            "a value is out of range or not finite", split=self.split, field=name,
            record=self.first + self.rows + first, file=file, row=row, got=first_bad(column, feature, first),
            expected=f"finite values, {'-inf' if low is None else low} to {'inf' if high is None else high}",
            values=f"{values.min()} to {values.max()}", count=f"{len(rows)} of the {len(column)} rows read together",
            cure="labels seem to start at 1: subtract 1 in the reader" if starts_at_1 else None,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Statistics a feature (see `statistics.py`); counts a class for a label."""
        return {
            "examples": self.rows,
            "features": {name: one.to_json() for name, one in self.statistics.items()},
            "classes": {
                name: dict(zip(self.features[name].classes, counts.tolist(), strict=True))
                for name, counts in self._counts.items()
            },
        }
