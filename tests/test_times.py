from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.errors import ParameterError, SchemaError
from datasets.readers import delimited, jsonl, parquet
from datasets.readers.faults import Faults, setting_aside
from datasets.readers.times import Times
from datasets.readers.zones import Zones
from datasets.schema import Feature

FEATURES = {"at": Feature("int64"), "x": Feature("float32")}
NOON = int(datetime(2026, 3, 1, 12, 30, tzinfo=UTC).timestamp())


def csv(folder: Path, *texts: str) -> list[int]:
    (folder / "a.csv").write_text("created,x\n" + "".join(f"{text},1\n" for text in texts))
    blocks = delimited.blocks(folder, "a.csv", FEATURES, columns={"at": "created"}, times=("created",))
    return np.concatenate([block.columns["at"] for block in blocks]).tolist()


def test_texts_are_seconds_in_utc(tmp_path: Path) -> None:
    assert csv(tmp_path, "2026-03-01T12:30:00", "2026-03-01 12:30", "2026-03-01T12:30:00.75", "1970-01-01") == [
        NOON, NOON, NOON, 0,
    ]  # fmt: skip
    assert csv(tmp_path, "2026-03-01T13:30:00+01:00", "2026-03-01 12:30:00Z") == [NOON, NOON]


@pytest.mark.parametrize("bad", ["2026-02-30", "12", "2026-03-01T12", "yesterday", "2026-03-01T12:30:00Z"])
def test_what_is_no_time_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(SchemaError, match="not a time") as caught:
        csv(tmp_path, "2026-03-01", bad)
    assert caught.value.facts["field"] == "created"


def test_bad_times_are_set_aside_with_their_row_and_text(tmp_path: Path) -> None:
    aside: list[tuple[object, ...]] = []
    with setting_aside(lambda *row: aside.append(row)):
        assert csv(tmp_path, "2026-03-01T12:30:00", "soon", "2026-02-30", "2026-03-01T12:30:00Z", "1970-01-01") == [
            NOON,
            0,
        ]
    assert [row[:3] for row in aside] == [("a.csv", at, "created") for at in (1, 2, 3)]
    assert [row[3] for row in aside] == ["'soon'", "'2026-02-30'", "'2026-03-01T12:30:00Z'"]
    assert {row[5] for row in aside} == {"not a time"}


def test_the_message_counts_them(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="2 not a time") as caught:
        csv(tmp_path, "2026-03-01", "soon", "later")
    assert "'soon' at row 1, 'later' at row 2" in caught.value.facts["got"]


def test_a_missing_time_is_a_missing_value(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="1 null") as caught:
        csv(tmp_path, "2026-03-01", "NA")
    assert str(caught.value.facts["row"]).startswith("1")


@pytest.mark.parametrize("text", ["2026-03-01T12:30:00", "2026-03-01T13:30:00+01:00"])
def test_times_may_begin_after_many_gaps(text: str) -> None:
    batches = [pa.RecordBatch.from_pydict({"at": pa.array(some, pa.string())}) for some in ([None, "NA"], [None, text])]
    clock, faults = Times(("at",), Zones()), Faults("a.csv")
    parts = [clock.read(pa.Table.from_batches([batch]), faults, 0) for batch in batches]
    faults.raise_if_any()
    table = pa.concat_tables(parts)
    assert table["at"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist() == [None, None, None, NOON]


def test_a_date_is_no_number_unless_it_is_said(tmp_path: Path) -> None:
    csv(tmp_path, "2026-03-01")
    with pytest.raises(SchemaError, match="not a whole number"):
        list(delimited.blocks(tmp_path, "a.csv", FEATURES, columns={"at": "created"}))
    with pytest.raises(ParameterError, match="no such column"):
        list(delimited.blocks(tmp_path, "a.csv", FEATURES, columns={"at": "created"}, times=("gone",)))


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"at": "2026-03-01T12:30:00", "x": 1}\n')
    (block,) = jsonl.blocks(tmp_path, "a.jsonl", FEATURES, times=("at",))
    assert block.columns["at"].tolist() == [NOON]


@pytest.mark.parametrize("value", ["1772368200", "[1]", "true"])
def test_what_is_no_text_is_no_time(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"at": {value}, "x": 1}}\n')
    with pytest.raises(SchemaError, match="not a time") as caught:
        list(jsonl.blocks(tmp_path, "a.jsonl", FEATURES, times=("at",)))
    assert caught.value.facts["expected"] == "text"


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin"), pa.date32()])
def test_columns_of_times_in_parquet(tmp_path: Path, kind: Any) -> None:
    at = pa.array([NOON * 1_000_000], pa.timestamp("us", "UTC"))
    at = at.cast(pa.timestamp("us")).cast(kind, safe=False) if kind == pa.date32() else at.cast(kind)
    pq.write_table(pa.table({"at": at, "x": [1.0]}), tmp_path / "a.parquet")
    (block,) = parquet.blocks(tmp_path, "a.parquet", FEATURES)
    assert block.columns["at"].tolist() == [NOON - NOON % 86_400 if kind == pa.date32() else NOON]
    with pytest.raises(SchemaError):  # 2026 isn't a number between 0 and 255
        list(parquet.blocks(tmp_path, "a.parquet", {**FEATURES, "at": Feature("uint8")}))
