"""What is wrong with the rows of a raw file, gathered so that one message can count and place it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from datasets.errors import SchemaError

EXAMPLES = 3

SetAside = Callable[[str, int, str, object, str, str], None]
"""Takes a bad row: file, data row, column, what was got, what was expected, reason."""
_SET_ASIDE: ContextVar[SetAside | None] = ContextVar("set_aside", default=None)


@contextmanager
def setting_aside(take: SetAside) -> Iterator[None]:
    """Within it, readers of tables leave out rows whose values don't fit, and give each to `take`."""
    token = _SET_ASIDE.set(take)
    try:
        yield
    finally:
        _SET_ASIDE.reset(token)


def set_aside() -> SetAside | None:
    """Who takes bad rows now; None when they end the reading."""
    return _SET_ASIDE.get()


@dataclass
class Faults:
    """What is wrong in one raw file, gathered over all of its rows so that the message can count.

    Attributes:
        file: Shown in the message.
        rows: By row, the first fault of each: column, value, what was expected, reason; only where `keeps_rows`.
        keeps_rows: Whether to keep every faulty row and not only a few examples.
    """

    file: str
    keeps_rows: bool = False
    rows: dict[int, tuple[str, object, str, str]] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _examples: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)
    _expected: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(
        self, column: str, what: str, rows: Sequence[int] | np.ndarray, values: Sequence[object], expected: str
    ) -> None:
        """Notes that some rows of a column have the same fault; `values` may stop after the first few."""
        if self.keeps_rows:
            for i, row in enumerate(rows):
                value = values[i] if i < len(values) else ""
                self.rows.setdefault(int(row), (column, value, expected, what))
        if len(rows):
            self._counts[column, what] = self._counts.get((column, what), 0) + len(rows)
            # The first block with this fault gives the examples.
            pairs = zip(rows[:EXAMPLES], values[:EXAMPLES], strict=True)
            self._examples.setdefault((column, what), [(int(row), str(value)) for row, value in pairs])
            self._expected.setdefault(column, expected)

    def raise_if_any(self) -> None:
        """Raises SchemaError for the first column with a fault; names the others."""
        if not self._counts:
            return
        columns = list(dict.fromkeys(column for column, _ in self._counts))
        counts = {what: n for (column, what), n in self._counts.items() if column == columns[0]}
        examples = sorted(pair for what in counts for pair in self._examples[columns[0], what])[:EXAMPLES]
        raise SchemaError(
            f"column {columns[0]!r}: " + ", ".join(f"{n} {what}" for what, n in counts.items()),
            file=self.file, field=columns[0], row=f"{examples[0][0]} (data rows are counted from 0)",
            got=", ".join(f"{value} at row {row}" for row, value in examples), expected=self._expected[columns[0]],
            also_wrong=", ".join(repr(column) for column in columns[1:]) or None,
        )  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where the values of one array come from.

    Attributes:
        faults: Of the raw file.
        column: Name of the column.
        row: Data row of the first value.
        per: Values a row, for the insides of lists.
        begins: Where each row's values begin, for the insides of lists that differ in length.
    """

    faults: Faults
    column: str
    row: int
    per: int = 1
    begins: np.ndarray | None = None

    def fault(
        self, what: str, mask: np.ndarray, values: Sequence[object] | np.ndarray | pa.Array, expected: str
    ) -> None:
        """Notes a fault of the values where `mask` is true."""
        at = np.flatnonzero(mask)
        shown: list[Any] = [values[int(i)] for i in (at if self.faults.keeps_rows else at[:EXAMPLES])]
        plain = [value.as_py() if isinstance(value, pa.Scalar) else value for value in shown]
        texts = ["null" if value is None else repr(value) if isinstance(value, str) else value for value in plain]
        rows = at // self.per if self.begins is None else np.searchsorted(self.begins, at, side="right") - 1
        self.faults.add(self.column, what, self.row + rows, texts, expected)
