"""What the table readers share: which files, which columns, and record batches into blocks of declared features."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datasets.errors import FetchError, NoRecordsError, ParameterError, SchemaError
from datasets.ragged import Ragged
from datasets.readers import raw as raw_files
from datasets.readers.faults import Faults, Place, SetAside, set_aside
from datasets.readers.ignored import MANIFEST, note
from datasets.readers.times import Times
from datasets.readers.unlabelled import left_out, looked_for, stand_in
from datasets.readers.values import check_fill, from_arrow
from datasets.readers.zones import Zones
from datasets.schema import Block, Columns, Feature

ColumnNames = Mapping[str, str | Sequence[str]]
"""By feature: the column that holds it, or the columns that are its values side by side."""

ROWS = 65_536


def files_of(raw: Path, where: str, endings: tuple[str, ...]) -> list[tuple[Path, str]]:
    """The files that make up a table, sorted by name, so that the order is the same on every machine.

    Args:
        raw: Folder of the raw files.
        where: Name of a file in it; or of a folder, for every file below it with one of `endings`, except names that
            start with "_" or "."; or a pattern such as "part-*.csv".
        endings: Of the format's names, in lower case.

    Returns:
        Path and name relative to `raw` of each.

    Raises:
        FetchError: There is no such file.
    """
    if (raw / where).is_dir():
        below = [path for path in (raw / where).rglob("*") if path.is_file() and path.name != MANIFEST]
        shown = [path for path in below if not any(p[0] in "_." for p in path.relative_to(raw / where).parts)]
        found = [path for path in shown if path.name.lower().endswith(endings)]
        ignored = Counter("hidden or marker" if path not in shown else path.suffix for path in {*below} - {*found})
        note(ignored, raw / where)
    elif any(mark in where for mark in "*?["):
        named = Path(where).parts
        below = [(path, path.relative_to(raw).parts) for path in raw.glob(where)]
        found = [path for path, parts in below if not any(p[0] in "_." and p not in named for p in parts)]
    else:
        found = [raw_files.find(raw, where)]
    names = {path.relative_to(raw).as_posix(): path for path in found if path.is_file()}
    if not names:
        raise FetchError("no file to read", folder=raw / where, expected=f"names that end with {', '.join(endings)}")
    return [(names[name], name) for name in sorted(names)]


def wanted_columns(features: Mapping[str, Feature], columns: ColumnNames | None) -> dict[str, tuple[str, ...]]:
    """Names of the columns of each feature; a feature that `columns` doesn't name is a column of its own name.

    Raises:
        ParameterError: `columns` names an unknown feature, or the columns don't make up the feature's shape.
    """
    given = dict(columns or {})
    if unknown := set(given) - set(features):
        known = ", ".join(features)
        raise ParameterError("no such feature", parameter="columns", got=", ".join(sorted(unknown)), known=known)
    wanted: dict[str, tuple[str, ...]] = {}
    for name, feature in looked_for(features).items():
        names = given.get(name, name)
        wanted[name] = (names,) if isinstance(names, str) else tuple(names)
        if not isinstance(names, str) and feature.shape != (len(names),):
            raise ParameterError(
                "columns side by side make a feature of shape (columns,)", parameter="columns", field=name,
                got=f"{len(names)} columns", expected=f"shape {feature.shape}",
            )  # fmt: skip
    return wanted


def check_header(
    names: Sequence[str], wanted: Mapping[str, tuple[str, ...]], file: str, *, delimiter: str = ""
) -> None:
    """Raises SchemaError unless column names are unique and the wanted ones are among them."""
    for position, name in enumerate(names):
        if name in names[:position]:
            raise SchemaError(
                f"duplicate column {name!r} at positions {names.index(name)} and {position}", file=file, field=name
            )
    for name in dict.fromkeys(name for group in wanted.values() for name in group):
        if name not in names:
            raise SchemaError(
                f"column {name!r} not found", file=file, field=name, got=list(names), cure=_hint(name, names, delimiter)
            )


def _hint(name: str, names: Sequence[str], delimiter: str) -> str | None:
    for other in names:
        if other.strip() == name:
            return f"{other!r} has surrounding spaces"
        if other.casefold() == name.casefold():
            return f"it is spelled {other!r}"
    found = [mark for mark in ";\t|," if delimiter and mark != delimiter and any(mark in other for other in names)]
    return f"is the delimiter {found[0]!r}?" if found else None


def to_blocks(
    batches: Iterable[pa.RecordBatch], file: str, features: Mapping[str, Feature],
    wanted: Mapping[str, tuple[str, ...]], *, fill: Mapping[str, float] | None, rows: int, zones: Zones,
    times: Sequence[str] = (),
) -> Iterator[Block]:  # fmt: skip
    """Blocks of exactly `rows` rows (but the last), whatever the sizes of the batches; of no rows for an empty file.

    Raises:
        ParameterError: No feature is read from a column of times.
        SchemaError: Some values don't fit; after all rows were looked at, so that the message counts them. Or times
            have a zone, and those of a file before had none, or the other way.
    """
    fill = fill or {}
    check_fill(features, fill)
    clock = Times(times, zones)
    clock.check(wanted)
    faults, row = Faults(file), 0
    take = set_aside()
    for table in _regroup(batches, rows):
        for column in table.schema:
            zones.see_type(column.name, column.type, file)
        if take is not None:
            yield from _sound(table, file, features, wanted, row, fill, take, clock)
            row += table.num_rows
            continue
        columns = convert(clock.read(table, faults, row), features, wanted, faults, row, fill)
        if not faults:
            yield Block(columns, file, row)
        row += table.num_rows
    faults.raise_if_any()
    if row == 0:
        yield Block(empty_columns(features), file, 0)


def _sound(
    table: pa.Table, file: str, features: Mapping[str, Feature], wanted: Mapping[str, tuple[str, ...]], row: int,
    fill: Mapping[str, float], take: SetAside, clock: Times,
) -> Iterator[Block]:  # fmt: skip
    """Blocks of consecutive rows without those that don't fit, which `take` gets."""
    numbers = np.arange(row, row + table.num_rows)
    while True:
        faults = Faults(file, keeps_rows=True)
        columns = convert(clock.read(table, faults, 0), features, wanted, faults, 0, fill)
        if not faults:
            break
        for at, (column, value, expected, what) in sorted(faults.rows.items()):
            take(file, int(numbers[at]), column, value, expected, what)
        # What is left is converted again: one bad row may spoil how all others of a column were read
        kept = np.ones(len(numbers), bool)
        kept[list(faults.rows)] = False
        table, numbers = table.filter(pa.array(kept)), numbers[kept]
    if not len(numbers):
        return
    cuts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for start, stop in itertools.pairwise(cuts):
        yield Block({name: values[start:stop] for name, values in columns.items()}, file, int(numbers[start]))


def convert(
    table: pa.Table, features: Mapping[str, Feature], wanted: Mapping[str, tuple[str, ...]], faults: Faults, row: int,
    fill: Mapping[str, float],
) -> Columns:  # fmt: skip
    """Columns of a table, whose first data row is `row`, as declared features; gathers the faults."""
    return {
        name: stand_in(feature, table.num_rows)
        if left_out(name)
        else _feature(table, wanted[name], feature, faults, row, fill.get(name))
        for name, feature in features.items()
    }


def empty_columns(features: Mapping[str, Feature]) -> Columns:
    """Columns of no rows."""
    columns: dict[str, Any] = {
        name: Ragged(np.zeros(0, feature.dtype), np.zeros(1), feature.of)
        if feature.varies
        else np.zeros((0, *feature.shape), feature.dtype)
        for name, feature in features.items()
    }
    return columns


def some_rows(blocks: Iterable[Block], where: Path) -> Iterator[Block]:
    """The same blocks; raises DataFormatError after the last if none had a row."""
    total = 0
    for block in blocks:
        total += len(next(iter(block.columns.values())))
        yield block
    if total == 0:
        raise NoRecordsError("0 records", file=where)


def _regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        pending.append(batch)
        count += batch.num_rows
        if count >= rows:
            table = pa.Table.from_batches(pending)
            whole = count - count % rows
            for start in range(0, whole, rows):
                yield table.slice(start, rows)
            pending, count = table.slice(whole).to_batches(), count - whole
    if count:
        yield pa.Table.from_batches(pending)


def _feature(
    table: pa.Table, names: tuple[str, ...], feature: Feature, faults: Faults, row: int, fill: float | None
) -> np.ndarray:
    if len(names) == 1:
        column: Any = _column(table, names[0], feature, Place(faults, names[0], row), fill)
        # What Arrow holds can't be changed in place, as a reader around this one may
        return column if feature.varies or column.flags.writeable else column.copy()
    values = np.empty((table.num_rows, len(names)), feature.dtype)
    for i, name in enumerate(names):
        values[:, i] = _column(table, name, Feature(feature.dtype), Place(faults, name, row), fill)
    return values


def _column(table: pa.Table, name: str, feature: Feature, place: Place, fill: float | None) -> np.ndarray:
    array = table.column(name)
    if pa.types.is_dictionary(array.type):
        # Chunks may have dictionaries of their own.
        array = array.cast(array.type.value_type)
    # To combine a single chunk would copy it
    return from_arrow(array.chunk(0) if array.num_chunks == 1 else array.combine_chunks(), feature, place, fill)
