"""What the columns of a table hold, found in one pass over all of its rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets.errors import DataFormatError
from datasets.readers import delimited, jsonl, parquet
from datasets.readers.tables import files_of
from datasets.readers.values import MISSING, known_texts

MOST_DISTINCT = 1000
DELIMITERS = ",;\t|"


@dataclass
class Column:
    """What one column holds.

    Attributes:
        name: In the table.
        kind: "number", "truth", "text", "list", "timestamp" (dates, too) or another type's name.
        rows: How many were seen.
        missing: How many of them have no value.
        values: How often each value occurs, as text; no more are counted beyond MOST_DISTINCT of them.
        many: Whether there are more values than that.
        whole: Whether all numbers are whole.
        widest: Most bytes of UTF-8.
        length: Of every list; None if they differ.
        mean: Of the numbers.
        spread: Their standard deviation.
        low: The least of them.
        in_folder: Whether it is a hive key.
        absent: The first file whose header hasn't the column, if there is one.
    """

    name: str
    kind: str = ""
    rows: int = 0
    missing: int = 0
    values: Counter[str] = field(default_factory=Counter)
    many: bool = False
    whole: bool = True
    widest: int = 0
    length: int | None = None
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    in_folder: bool = False
    absent: str = ""
    _squares: float = 0.0
    _count: int = 0

    def add(self, array: pa.Array) -> None:
        """Looks at more rows."""
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        kind = _kind_of(array.type)
        self.rows += len(array)
        if kind == "null":
            self.missing += len(array)
            return
        self.kind = kind if self.kind in ("", kind) else "mixed"
        if kind == "list":
            lengths = set(pc.list_value_length(array).to_pylist())  # type: ignore[attr-defined]
            self.length = lengths.pop() if len(lengths) == 1 and self.length in (None, *lengths) else -1
            return
        if kind not in ("number", "truth", "text"):
            self.missing += array.null_count
            return
        if kind == "text":
            self.widest = max(self.widest, pc.max(pc.binary_length(array)).as_py() or 0)  # type: ignore[attr-defined]
        self._count_values(array)
        numbers = array if kind == "number" else _as_numbers(array) if kind == "text" else None
        self.missing += array.null_count if kind != "text" or numbers is None else numbers.null_count
        if numbers is None:
            self._count = -1  # some text is no number
        elif self._count >= 0:
            self._add_numbers(numbers)

    @property
    def is_number(self) -> bool:
        """Whether every value that is there is a number, and there is one."""
        return self.kind in ("number", "text") and self._count > 0

    @property
    def gaps(self) -> int:
        """Rows without a value; a text such as "NA" is none."""
        if self.is_number:
            return self.missing
        return self.missing + sum(count for text, count in self.values.items() if text.strip() in MISSING)

    def _count_values(self, array: pa.Array) -> None:
        if self.many:
            return
        for pair in pc.value_counts(array).to_pylist():  # type: ignore[attr-defined]
            if pair["values"] is not None:
                self.values[_as_text(pair["values"])] += pair["counts"]
        self.many = len(self.values) > MOST_DISTINCT

    def _add_numbers(self, numbers: pa.Array) -> None:
        values = numbers.cast(pa.float64(), safe=False).drop_null().to_numpy(zero_copy_only=False)
        self.missing += int(np.isnan(values).sum())
        values = values[np.isfinite(values)]
        if not len(values):
            return
        self.whole &= bool((values == values.round()).all())
        self.low = min(self.low, float(values.min()))
        count = self._count + len(values)
        delta = values.mean() - self.mean
        # Chan, Golub, LeVeque 1983: the pairwise update
        self._squares += float(((values - values.mean()) ** 2).sum() + delta**2 * self._count * len(values) / count)
        self.mean += float(delta * len(values) / count)
        self._count, self.spread = count, math.sqrt(self._squares / count)


@dataclass
class Table:
    """A table and its columns.

    Attributes:
        kind: "delimited", "parquet" or "jsonl".
        files: Names relative to the raw folder.
        columns: In their order.
        rows: Of all files.
        delimiter: Where it isn't the usual one.
        paths: Of the files.
        separator: Between values, where there is one.
        headers: Names of the columns of each file, where the format has headers.
    """

    kind: str
    files: list[str]
    columns: list[Column]
    rows: int
    delimiter: str | None = None
    paths: list[Path] = field(default_factory=list)
    separator: str | None = None
    headers: list[list[str]] = field(default_factory=list)


def look_at_columns(kind: str, folder: Path, where: str) -> Table:
    """All columns of a table.

    Raises:
        DataError: A file is damaged or empty.
    """
    endings = {"delimited": delimited.ENDINGS, "parquet": parquet.ENDINGS, "jsonl": jsonl.ENDINGS}[kind]
    files = files_of(folder, where, endings)
    delimiter = delimiter_of(files[0][0]) if kind == "delimited" else None
    columns: dict[str, Column] = {}
    headers: list[list[str]] = []
    rows = 0
    for path, name in files:
        if kind != "jsonl":
            headers.append(_names(kind, path, name, delimiter))
        keys = parquet.hive_keys(name) if kind == "parquet" else {}
        for batch in batches(kind, path, name, delimiter):
            for i, column in enumerate(batch.schema.names):
                seen = columns.setdefault(column, Column(column, in_folder=column in keys))
                seen.missing += rows - seen.rows  # files before this one hadn't the column
                seen.rows = rows
                seen.add(batch.column(i))
            rows += batch.num_rows
    for column in columns.values():
        column.missing += rows - column.rows
        column.rows = rows
        held = zip(files, headers, strict=False)
        column.absent = next((name for (_, name), names in held if column.name not in names), "")
    if rows == 0:
        raise DataFormatError("0 records", file=folder / where)
    usual = delimiter is None or all(delimiter == delimited._usual_delimiter(name) for _, name in files)
    return Table(
        kind, [name for _, name in files], list(columns.values()), rows, None if usual else delimiter,
        [path for path, _ in files], delimiter, headers,
    )  # fmt: skip


def delimiter_of(path: Path) -> str:
    """What stands between the values of the header: the mark that occurs most often outside of quotes."""
    widths = {mark: len(delimited.header(path, mark)) for mark in DELIMITERS}
    return max(DELIMITERS, key=lambda mark: widths[mark])


def _names(kind: str, path: Path, name: str, delimiter: str | None) -> list[str]:
    if kind == "delimited":
        return delimited.header(path, delimiter or ",")
    with parquet._opened(path) as file:
        return [*file.schema_arrow.names, *parquet.hive_keys(name)]


def batches(kind: str, path: Path, name: str, delimiter: str | None) -> Iterator[pa.RecordBatch]:
    """All columns of one file of a table."""
    if kind == "delimited":
        header = delimited.header(path, delimiter or ",")
        yield from delimited.batches(path, {column: (column,) for column in header}, delimiter or ",")
    elif kind == "parquet":
        keys = parquet.hive_keys(name)
        with parquet._opened(path) as file:
            for batch in file.iter_batches():
                for key, value in keys.items():
                    batch = batch.append_column(key, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
                yield batch
    else:
        members = dict.fromkeys(member for _, row in jsonl._objects(path) for member in row)
        yield from jsonl._batches(path, {member: (member,) for member in members}, 16_384)


def _kind_of(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_boolean(kind):
        return "truth"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if _kind_of(kind.value_type) == "number" else str(kind)
    if types.is_timestamp(kind) or types.is_date(kind):
        return "timestamp"  # files may differ in the unit
    return "null" if types.is_null(kind) else str(kind)


def _as_numbers(texts: pa.Array) -> pa.Array | None:
    """Texts as numbers, missing ones as null, by the readers' rule; None if one is neither."""
    try:
        return known_texts(texts).cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
