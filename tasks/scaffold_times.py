"""Which columns of a table are times, and why one that looks like a time can't be taken for the time of its row."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from datasets.readers.times import ISO
from datasets.readers.values import MISSING
from tasks.scaffold_columns import Column

EPOCH = re.compile(r"(^|_)(timestamp|ts|time|epoch|unix|at)$", re.IGNORECASE)
DAY_NAME = re.compile(r"(^|_)(date|day|dt)$", re.IGNORECASE)
OTHER_DATE = re.compile(r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T,]|$)|^\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}")
BIRTH = re.compile(r"birth|(^|_)(born|dob)(_|$)", re.IGNORECASE)
LATER = re.compile(r"(^|_)(updat|modif|chang|delet|expir|valid|due|end|clos|finish|complet|resolv)", re.IGNORECASE)
YEAR_1980 = 315_532_800
YEARS_AS_DAYS = (19_000_101, 21_001_231)
MOST = 0.9  # of the values: the others are then the odd ones


def times_among(columns: list[Column]) -> tuple[list[Column], list[str]]:
    """The columns that may be the time of a row, and remarks on those that only look so.

    Of several, those that are named after what came later (updated_at, closed_at ...) are set aside.
    """
    found, remarks = [], []
    for column in columns:
        why = why_no_time(column)
        if why == "":
            found.append(column)
        elif why:
            remarks.append(f"{column.name} looks like a time, but {why}")
    if len(found) > 1:
        first = [column for column in found if not LATER.search(column.name.strip())]
        if len(first) == 1:
            later = [column.name for column in found if column is not first[0]]
            remarks += [f"{name} is a time, too, but of what came later" for name in later]
            found = first
    return found, remarks


def why_no_time(column: Column) -> str | None:
    """Why a column isn't the time of its row: "" if it may be, None if it doesn't look so at all."""
    if column.in_folder:
        return None
    if column.is_number:
        why = _why_no_number(column)
    elif column.kind == "text":
        why = _why_no_text(column)
    else:
        why = "" if column.kind == "timestamp" else None
    if why != "":
        return why
    if BIRTH.search(column.name.strip()):
        return "it says when someone was born, not when the row came to be"
    return f"{column.gaps} of {column.rows} rows have none" if column.gaps else ""


def _why_no_number(column: Column) -> str | None:
    name = column.name.strip()
    if EPOCH.search(name) and column.low >= YEAR_1980:
        return "" if column.whole else "its seconds have fractions"
    if DAY_NAME.search(name) and column.whole and YEARS_AS_DAYS[0] <= column.low <= YEARS_AS_DAYS[1]:
        return "it isn't written as 2026-03-01 (ISO 8601)"
    return None


def _why_no_text(column: Column) -> str | None:
    values = {text.strip(): count for text, count in column.values.items() if text.strip() not in MISSING}
    odd = {text: count for text, count in values.items() if not re.match(ISO, text)}
    total = sum(values.values())
    if not total:
        return None
    if not odd:
        return ""
    if sum(odd.values()) <= (1 - MOST) * total:
        return f"not every value is one ({next(iter(odd))!r})"
    others = sum(count for text, count in odd.items() if OTHER_DATE.match(text))
    return f"{next(iter(odd))!r} isn't written as 2026-03-01 (ISO 8601)" if others >= MOST * total else None


def in_seconds(array: pa.Array) -> np.ndarray:
    """Times as seconds since 1970 began, int64 [rows]; none may be missing."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.int64())
    if not pa.types.is_integer(array.type) and not pa.types.is_floating(array.type):
        array = array.cast(pa.timestamp("s", getattr(array.type, "tz", None)), safe=False)
    return array.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
