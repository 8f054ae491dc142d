"""JSON Lines, gzip or not: one object a line, its members are the columns.

Format: https://jsonlines.org. Lines are parsed by Python's own parser and not by pyarrow's, which decides types from
the first block, builds invalid arrays from lists that start with null, and can't tell the line of a fault. A member
that a row lacks is null; members that no feature wants are ignored; a name twice in one object is refused, and so is a
member that changes between number, string, list and true/false.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasets.errors import DataFormatError
from datasets.readers import raw as raw_files
from datasets.readers import tables
from datasets.readers.tables import ColumnNames
from datasets.readers.zones import zones_here
from datasets.schema import Block, Feature

ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
KINDS = {bool: "true/false", int: "number", float: "number", str: "string", list: "list", dict: "object"}
UNFIT = (pa.ArrowException, OverflowError, UnicodeEncodeError)
LONGEST = 64 << 20  # bytes of a line


def blocks(
    raw: Path, where: str, features: Mapping[str, Feature], *,
    columns: ColumnNames | None = None, fill: Mapping[str, float] | None = None,
    times: Sequence[str] = (), rows: int = 16_384,
) -> Iterator[Block]:  # fmt: skip
    """Rows of one JSON Lines file or several.

    Args:
        raw: Folder of the raw files.
        where: File, folder or pattern in it (`tables.files_of`).
        features: Declared features; the columns of the blocks.
        columns: Member, or members side by side, of the features that aren't named as their member is.
        fill: By feature, what stands for a missing value; a feature without is refused when a value is missing.
        times: Columns of text that are times (`times.py`).
        rows: Of a block.

    Yields:
        Blocks of `rows` rows of one file; blank lines are no rows.

    Raises:
        FetchError: There's no such file.
        DataFormatError: A file isn't JSON Lines (names the line, counted from 1), or there are no records at all.
        SchemaError: Values don't fit the features.
    """
    wanted, zones = tables.wanted_columns(features, columns), zones_here()

    def every() -> Iterator[Block]:
        for path, name in tables.files_of(raw, where, ENDINGS):
            batches = _batches(path, wanted, rows)
            yield from tables.to_blocks(batches, name, features, wanted, fill=fill, rows=rows, zones=zones, times=times)

    return tables.some_rows(every(), raw / where)


def _batches(path: Path, wanted: Mapping[str, tuple[str, ...]], rows: int) -> Iterator[pa.RecordBatch]:
    used = list(dict.fromkeys(name for group in wanted.values() for name in group))
    kinds: dict[str, str] = {}
    lines: list[int] = []
    objects: list[dict[str, Any]] = []
    for line, row in _objects(path):
        lines.append(line)
        objects.append(row)
        if len(lines) == rows:
            yield _batch({name: [row.get(name) for row in objects] for name in used}, lines, kinds, path)
            lines, objects = [], []
    if lines:
        yield _batch({name: [row.get(name) for row in objects] for name in used}, lines, kinds, path)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with raw_files.opened(path) as stream:
        number = 0
        while data := stream.readline(LONGEST + 1):
            number += 1
            if len(data) > LONGEST:
                raise DataFormatError(f"a line is longer than {LONGEST >> 20} MiB", file=path, line=number)
            if number == 1:
                if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise DataFormatError("file is UTF-16; expected UTF-8", file=path, cure="convert it to UTF-8")
                data = data.removeprefix(codecs.BOM_UTF8)
                if data.lstrip().startswith(b"["):
                    raise DataFormatError(
                        "not JSON Lines: file starts with '['", file=path, cure="write an object a line"
                    )
            if data.strip():
                yield number, _object(data, number, path)


def _object(data: bytes, line: int, path: Path) -> dict[str, Any]:
    try:
        value = DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        what, got = "a line isn't JSON", str(error)
        if not data.endswith(b"\n") and line > 1:
            what += ": the file looks truncated"
        elif line == 1 and data.strip() == b"{":
            what = "not JSON Lines: the first object goes over several lines"
        raise DataFormatError(what, file=path, line=line, got=got) from error
    if not isinstance(value, dict):
        raise DataFormatError("a line isn't an object", file=path, line=line, got=type(value).__name__)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate member {next(name for name in names if names.count(name) > 1)!r}")
    return made


DECODER = json.JSONDecoder(object_pairs_hook=_unique)  # `json.loads` with a hook would build one a line


def _batch(values: dict[str, list[Any]], lines: list[int], kinds: dict[str, str], path: Path) -> pa.RecordBatch:
    arrays = {}
    for name, column in values.items():
        types = dict.fromkeys(map(type, column))  # in the order in which they show
        for kind in [KINDS[seen] for seen in types if seen in KINDS]:
            if kinds.setdefault(name, kind) != kind:
                line, value = next(pair for pair in zip(lines, column, strict=True) if KINDS.get(type(pair[1])) == kind)
                raise DataFormatError(
                    f"column {name!r} changed from {kinds[name]} to {kind}", file=path, line=line, field=name,
                    got=repr(value)[:80],
                )  # fmt: skip
        arrays[name] = _array(name, column, lines, path)
    return pa.record_batch(arrays)


def _array(name: str, column: list[Any], lines: list[int], path: Path) -> pa.Array:
    try:
        return pa.array(column)
    except UNFIT as error:
        cause = error
    for line, value in zip(lines, column, strict=True):
        try:
            pa.array([value])
        except UNFIT as error:
            raise DataFormatError(
                f"column {name!r}: a value can't be read", file=path, line=line, field=name, got=error
            ) from error
    raise DataFormatError(f"column {name!r}: values of several types", file=path, field=name, got=cause) from cause
