"""Times that a file holds as text: ISO 8601, such as 2026-03-01 or 2026-03-01T12:30:00+01:00.

A column is a time only where the dataset file says so (`times=`): a date in a column of ages is a fault, not a number.
In front of a feature of whole numbers, a time is the seconds since 1970 began in UTC (`values.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets.errors import ParameterError, SchemaError
from datasets.readers.faults import Faults, Place
from datasets.readers.values import known_texts
from datasets.readers.zones import Zones

ISO = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?$"
ZONE = r"\d:\d\d.*(Z|[+-]\d\d:?\d\d)$"
NO_TIME, EXAMPLE = "not a time", "a time such as 2026-03-01T12:30:00"
UTC = pa.timestamp("us", "UTC")


class Times:
    """Columns of text that are times, in one raw file: all of a column with zones, or all without.

    Args:
        columns: Their names.
        zones: Of this file and others.
    """

    def __init__(self, columns: Sequence[str], zones: Zones) -> None:
        self._columns, self._zones = tuple(columns), zones
        self._zoned: dict[str, bool] = {}

    def check(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        """Raises ParameterError if no feature is read from one of the columns."""
        known = {name for group in wanted.values() for name in group}
        for name in self._columns:
            if name not in known:
                raise ParameterError("no such column", parameter="times", got=name, known=", ".join(sorted(known)))

    def read(self, table: pa.Table, faults: Faults, row: int) -> pa.Table:
        """The table with these columns as times.

        A text that is no time is noted, and 1970 stands in its place; what is missing stays missing.

        Args:
            table: Consecutive rows.
            faults: Of the raw file.
            row: Number of the first of them.

        Raises:
            SchemaError: A column holds no text, or times with a zone where another file has none, or the other way.
        """
        for name in self._columns:
            texts = pa.concat_arrays(table.column(name).chunks) if table.num_rows else pa.array([], pa.string())
            times = self._times(texts, Place(faults, name, row))
            table = table.set_column(table.schema.get_field_index(name), name, times)
        return table

    def _times(self, texts: pa.Array, place: Place) -> pa.Array:
        kind = texts.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise SchemaError(
                f"column {place.column!r}: {NO_TIME}", file=place.faults.file, field=place.column, got=str(kind),
                expected="text",
            )  # fmt: skip
        known = known_texts(texts.cast(pa.string()))
        sound = self._noted(known, texts, _mask(pc.match_substring_regex(known, ISO), False), EXAMPLE, place)  # type: ignore[attr-defined]
        zones = pc.match_substring_regex(sound, ZONE)  # type: ignore[attr-defined]
        if place.column not in self._zoned and len(said := zones.drop_null()):
            self._zoned[place.column] = said[0].as_py()
            self._zones.see(place.column, self._zoned[place.column], place.faults.file)
        zoned = self._zoned.get(place.column, False)
        expected = f"a time {'with its' if zoned else 'without a'} zone, as those before"
        sound = self._noted(sound, texts, _mask(zones, not zoned), expected, place)
        made = _cast(sound, zoned)
        if made is None:  # one of them alone is enough: find it
            bad = np.array([_cast(sound[at : at + 1], zoned) is None for at in range(len(sound))])
            sound = self._noted(sound, texts, bad, "a day of the calendar", place)
            made = _cast(sound, zoned)
        assert made is not None  # noqa: S101 - every one of them was tried
        stands_in = pa.scalar(0, UTC)
        return pc.if_else(pa.array(_mask(pc.is_null(sound)) & ~_mask(pc.is_null(known))), stands_in, made)  # type: ignore[attr-defined]

    @staticmethod
    def _noted(sound: pa.Array, texts: pa.Array, bad: np.ndarray, expected: str, place: Place) -> pa.Array:
        """Notes the bad ones and leaves them out of the sound ones."""
        if bad.any():
            place.fault(NO_TIME, bad, texts, expected)
        return _without(sound, bad)


def _mask(flags: pa.Array, where: bool = True) -> np.ndarray:
    """Bool [rows]: where a flag is that; False where it is missing."""
    return np.array(pc.fill_null(pc.equal(flags, where), False).to_numpy(zero_copy_only=False), bool)  # type: ignore[attr-defined]


def _without(texts: pa.Array, rows: np.ndarray) -> pa.Array:
    return pc.if_else(pa.array(rows), pa.scalar(None, pa.string()), texts)  # type: ignore[attr-defined]


def _cast(texts: pa.Array, zoned: bool) -> pa.Array | None:
    """Of one type, also where there is nothing but gaps; None if one of them isn't in the calendar."""
    try:
        return texts.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(UTC)
    except pa.ArrowInvalid:
        return None
