from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scaffold_samples as samples

from datasets.errors import DataFormatError
from tasks.scaffold_columns import Column, Table, delimiter_of, look_at_columns


def seen(*arrays: pa.Array) -> Column:
    column = Column("c")
    for array in arrays:
        column.add(array)
    return column


def test_numbers_over_several_batches() -> None:
    column = seen(pa.array([1.0, 2.0, None]), pa.array([10, 20]))
    assert column.is_number
    assert column.whole
    assert (column.rows, column.missing) == (5, 1)
    assert column.mean == pytest.approx(np.mean([1, 2, 10, 20]))
    assert column.spread == pytest.approx(np.std([1, 2, 10, 20]))
    assert column.values == {"1": 1, "2": 1, "10": 1, "20": 1}


def test_nan_is_missing() -> None:
    column = seen(pa.array([1.5, float("nan")]))
    assert (column.missing, column.mean, column.whole) == (1, 1.5, False)


def test_texts_that_are_numbers_until_one_is_not() -> None:
    assert seen(pa.array(["1", " 2.5", "NA", ""])).is_number
    assert seen(pa.array(["1", " 2.5", "NA", ""])).missing == 2
    assert not seen(pa.array(["1"]), pa.array(["x"]), pa.array(["2"])).is_number
    assert seen(pa.array(["é"])).widest == 2


def test_other_types() -> None:
    assert seen(pa.array([True, False])).values == {"true": 1, "false": 1}
    assert seen(pa.array([[1, 2], [3, 4]])).length == 2
    assert seen(pa.array([[1, 2]]), pa.array([[3]])).length == -1
    assert seen(pa.array(["a", "b"]).dictionary_encode()).kind == "text"
    assert seen(pa.array([1]), pa.array(["a"])).kind == "mixed"
    assert seen(pa.nulls(3)).missing == 3


def test_many_values_are_not_all_kept() -> None:
    column = seen(*(pa.array(range(i * 600, i * 600 + 600)) for i in range(4)))
    assert column.many
    assert len(column.values) <= 1200


@pytest.mark.parametrize("kind", ["delimited", "parquet", "jsonl"])
def test_tables_of_each_format(tmp_path: Path, kind: str) -> None:
    made = samples.columns(50)
    if kind == "delimited":
        path = samples.table(tmp_path / "t.csv", rows=50, delimiter=";")
    elif kind == "parquet":
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table(made), path)
    else:
        path = tmp_path / "t.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in pa.table(made).to_pylist()))
    table = look_at_columns(kind, tmp_path, path.name)
    found = {column.name: column for column in table.columns}
    assert list(found) == list(made)
    assert (table.rows, found["age"].missing) == (50, made["age"].count(None))
    assert found["weight"].mean == pytest.approx(np.mean(np.array(made["weight"], float)))
    assert table.delimiter == (";" if kind == "delimited" else None)


def test_keys_of_folders_are_columns_that_say_so(tmp_path: Path) -> None:
    table: Table = look_at_columns("parquet", samples.parquet(tmp_path / "nights"), "")
    night = next(column for column in table.columns if column.name == "night")
    assert night.in_folder
    assert night.values == {"1": 200, "2": 200, "3": 200}


def test_a_column_that_a_file_lacks_is_missing_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1], "b": [5]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": [1, 1, 1]}), tmp_path / "3.parquet")
    found = {column.name: column for column in look_at_columns("parquet", tmp_path, "").columns}
    assert (found["b"].rows, found["b"].missing, found["a"].missing) == (6, 5, 0)


def test_no_rows_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(DataFormatError, match="0 records"):
        look_at_columns("delimited", tmp_path, "t.csv")


@pytest.mark.parametrize(
    ("line", "mark"), [("a,b;c,d", ","), ("a;b;c", ";"), ("a\tb", "\t"), ('"a;b;c",d', ","), ("a", ",")]
)
def test_delimiters(tmp_path: Path, line: str, mark: str) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n1\n")
    assert delimiter_of(tmp_path / "t.csv") == mark
