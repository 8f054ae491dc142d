"""Values that no training may see: which they are, and the side file of the rows that were left out because of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from datasets.errors import SchemaError
from datasets.ragged import Ragged
from datasets.schema import Block, Feature
from datasets.validation import Validation

QUARANTINE = "quarantine.jsonl"


def bad_values(column: np.ndarray, feature: Feature) -> np.ndarray:
    """Where a column is out of the feature's range or not finite: bool, of the column's shape."""
    low, high = feature.bounds
    bad = np.zeros(column.shape, bool) if column.dtype.kind != "f" else ~np.isfinite(column)
    with np.errstate(invalid="ignore"):
        bad |= False if low is None else column < low
        bad |= False if high is None else column > high
    return bad


def bad_rows(column: np.ndarray | Ragged, feature: Feature) -> np.ndarray:
    """Rows of a column that hold a value out of range or not finite, in order."""
    if isinstance(column, Ragged):
        return column.rows_of(np.flatnonzero(bad_values(column.values, feature)))
    bad = bad_values(column, feature)
    return np.flatnonzero(bad.reshape(len(column), -1).any(axis=1)) if bad.any() else np.zeros(0, np.int64)


def first_bad(column: np.ndarray | Ragged, feature: Feature, row: int) -> Any:  # noqa: ANN401 - a number
    """The first such value of a row."""
    values = np.asarray(column[row]).reshape(-1)
    return values[bad_values(values, feature)][0].item()


class Quarantine:
    """Writes the rows that are set aside, one JSON object a line: file, row, field, got, expected, reason.

    Args:
        folder: Gets `quarantine.jsonl`, unless no row is set aside.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / QUARANTINE
        self.rows = 0
        self.reasons: Counter[str] = Counter()
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def sift(self, block: Block, features: Mapping[str, Feature]) -> np.ndarray:
        """Sets the bad rows of a block aside; gives where they are, bool [rows].

        A row is named once, for the first of its features that is bad.
        """
        rows = len(next(iter(block.columns.values())))
        found = np.zeros(rows, bool)
        for name, feature in features.items():
            column = block.columns.get(name)
            if column is None or column.dtype.kind not in "iufb":  # the writer refuses the whole block
                continue
            if feature.of:  # every text is allowed
                continue
            for row in bad_rows(column, feature).tolist():
                if found[row]:
                    continue
                value = first_bad(column, feature, row)
                low, high = feature.bounds
                self.put(block.file, block.row + row, name, value, f"finite, {low} to {high}", _reason(value))
                found[row] = True
        return found

    def put(self, file: str, row: int, field: str, got: object, expected: str, reason: str) -> None:
        """Notes one row."""
        if self._file is None:
            self._file = self.path.open("w", encoding="utf-8")
        shown = got if isinstance(got, int | bool) or (isinstance(got, float) and np.isfinite(got)) else str(got)
        line = {"file": file, "row": row, "field": field, "got": shown, "expected": expected, "reason": reason}
        self._file.write(json.dumps(line, sort_keys=True, allow_nan=False) + "\n")
        self.rows += 1
        self.reasons[f"{field}: {reason}"] += 1


def check_budget(validation: Validation, bad: int, rows: int, reasons: Mapping[str, int], first: str | None) -> None:
    """Raises SchemaError when more rows were set aside than the dataset file allows."""
    if bad > validation.most_bad * rows:
        raise SchemaError(
            "more rows are bad than may be set aside", got=f"{bad} of {rows} rows ({bad / rows:.3%})",
            expected=f"at most {validation.most_bad:.3%}", reasons=", ".join(f"{n} x {w}" for w, n in reasons.items()),
            first=first, cure="mend the source, or raise Validation(most_bad=...) in the dataset file",
        )  # fmt: skip


def _reason(value: float) -> str:
    return "out of range" if np.isfinite(value) else "not finite"
