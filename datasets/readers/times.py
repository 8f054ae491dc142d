"""Times that a file holds as text: ISO 8601, such as 2026-03-01 or 2026-03-01T12:30:00+01:00.

A column is a time only where the dataset file says so (`times=`): a date in a column of ages is a fault, not a number.
In front of a feature of whole numbers, a time is the seconds since 1970 began in UTC (`values.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from datasets.errors import ParameterError, SchemaError
from datasets.readers.values import MISSING

ISO = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?$"
ZONE = r"\d:\d\d.*(Z|[+-]\d\d:?\d\d)$"


def with_times(
    batches: Iterable[pa.RecordBatch], times: Sequence[str], file: str, wanted: Mapping[str, tuple[str, ...]]
) -> Iterator[pa.RecordBatch]:
    """The same batches, with these columns of text as times.

    Raises:
        ParameterError: No feature is read from one of the columns.
        SchemaError: A text is no time, or some say a zone and others don't; names file, column, row and text.
    """
    known = {name for group in wanted.values() for name in group}
    for name in times:
        if name not in known:
            raise ParameterError("no such column", parameter="times", got=name, known=", ".join(sorted(known)))
    zoned: dict[str, bool] = {}
    row = 0
    for batch in batches:
        for name in times:
            made = _parsed(batch.column(name), name, file, row, zoned)
            batch = batch.set_column(batch.schema.get_field_index(name), name, made)
        row += batch.num_rows
        yield batch


def _parsed(texts: pa.Array, name: str, file: str, row: int, zoned: dict[str, bool]) -> pa.Array:
    kind = texts.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise SchemaError(f"column {name!r}: not a time", file=file, field=name, got=str(kind), expected="text")
    trimmed = pc.utf8_trim_whitespace(texts.cast(pa.string()))  # type: ignore[attr-defined]
    missing = pc.is_in(trimmed, value_set=pa.array(sorted(MISSING)))  # type: ignore[attr-defined]
    known = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)  # type: ignore[attr-defined]
    _refuse(pc.match_substring_regex(known, ISO), texts, name, file, row, "a time such as 2026-03-01T12:30:00")  # type: ignore[attr-defined]
    with_zone = pc.match_substring_regex(known, ZONE)  # type: ignore[attr-defined]
    if name not in zoned and len(said := with_zone.drop_null()):
        zoned[name] = said[0].as_py()
    if zoned.get(name):
        _refuse(with_zone, texts, name, file, row, "a time with its zone, as those before")
    else:
        _refuse(pc.invert(with_zone), texts, name, file, row, "a time without a zone, as those before")  # type: ignore[attr-defined]
    try:
        made = known.cast(pa.timestamp("us", "UTC" if zoned.get(name) else None))
        return made.cast(pa.timestamp("us", "UTC"))  # of one type, also where the first batches have nothing but gaps
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column {name!r}: not a time", file=file, field=name, row=f"{row} or later", got=error
        ) from error


def _refuse(fits: pa.Array, texts: pa.Array, name: str, file: str, row: int, expected: str) -> None:
    at = pc.index(fits, False).as_py()  # type: ignore[attr-defined]
    if at >= 0:
        raise SchemaError(
            f"column {name!r}: not a time", file=file, field=name, row=f"{row + at} (data rows are counted from 0)",
            got=texts[at].as_py(), expected=expected,
        )  # fmt: skip
