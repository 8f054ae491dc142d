"""Columns that are times, and those that only look so."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.scaffold_columns import Column
from tasks.scaffold_times import in_seconds, times_among, why_no_time


def column(name: str, values: Any) -> Column:
    made = Column(name)
    made.add(values if isinstance(values, pa.Array) else pa.array(values))
    return made


ISO = ["2026-03-01", "2026-03-02"]
CASES: list[tuple[str, Any, str | None]] = [
    ("day", ISO, ""),
    ("any", [" 2026-03-01T10:00:00Z", *ISO], ""),
    ("ts", [1_700_000_000, 1_700_000_001], ""),
    ("created_at", ["1700000000", "1700000001"], ""),
    ("seen", pa.array([0, 1], pa.timestamp("ms")), ""),
    ("when", [date(2026, 3, 1), None], "1 of 2 rows have none"),
    ("day", [*ISO, "", "NA"], "2 of 4 rows have none"),
    ("day", [*ISO * 10, "soon"], "not every value is one ('soon')"),
    ("ts", [1_700_000_000.5], "its seconds have fractions"),
    ("day", [20_260_301, 20_260_302], "it isn't written as 2026-03-01 (ISO 8601)"),
    ("order", ["03/01/2026", "12.31.26"], "'03/01/2026' isn't written as 2026-03-01 (ISO 8601)"),
    ("order", ["3 Mar 2026", "14-May-2026"], "'3 Mar 2026' isn't written as 2026-03-01 (ISO 8601)"),
    ("birthday", ISO, "it says when someone was born, not when the row came to be"),
    ("time", [3, 4], None),
    ("day", [1, 31], None),
    ("version", ["1.2", "1.2.3", "x"], None),
    ("name", ["", "NA"], None),
    ("flag", [True, False], None),
]


@pytest.mark.parametrize(("name", "values", "expected"), CASES)
def test_what_is_a_time(name: str, values: Any, expected: str | None) -> None:
    assert why_no_time(column(name, values)) == expected


def test_of_several_the_ones_of_what_came_later_are_set_aside() -> None:
    columns = {name: column(name, ISO) for name in ("created", "updated_at", "expires", "shipped")}
    found, remarks = times_among([columns["created"], columns["updated_at"], columns["expires"]])
    assert found == [columns["created"]]
    assert [remark.split()[0] for remark in remarks] == ["updated_at", "expires"]
    assert len(times_among(list(columns.values()))[0]) == 4
    assert times_among([columns["updated_at"]]) == ([columns["updated_at"]], [])


def test_seconds_of_every_type() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    seconds = int(noon.timestamp())
    for array in (
        pa.array([noon]), pa.array([noon.replace(tzinfo=None)], pa.timestamp("ns")), pa.array([seconds]),
        pa.array([float(seconds)]), pa.array([str(seconds)]),
    ):  # fmt: skip
        np.testing.assert_array_equal(in_seconds(array), [seconds])
    assert in_seconds(pa.array([date(1970, 1, 2)])).tolist() == [86_400]
