"""What the table readers share: which files in which order, which columns, blocks of the rows asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_cases import FLOAT, LABEL, WHOLE, csv, fails, together

from datasets.errors import FetchError, ParameterError, SchemaError
from datasets.readers import delimited, jsonl, parquet
from datasets.schema import Feature


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_blocks_have_the_asked_rows_whatever_the_source(tmp_path: Path, rows: int) -> None:
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{i},{i % 2}\n" for i in range(7)))
    pq.write_table(
        pa.table({"x": range(7), "label": [str(i % 2) for i in range(7)]}), tmp_path / "t.parquet", row_group_size=2
    )
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"x": i, "label": str(i % 2)}) + "\n" for i in range(7)))
    for reader, name in ((delimited, "t.csv"), (parquet, "t.parquet"), (jsonl, "t.jsonl")):
        blocks = list(reader.blocks(tmp_path, name, {"x": FLOAT, "label": LABEL}, rows=rows))
        assert [(block.file, block.row) for block in blocks] == [(name, row) for row in range(0, 7, rows)]
        got = together(blocks)
        assert got["x"].tolist() == list(range(7))
        assert got["label"].tolist() == [i % 2 for i in range(7)]


def test_files_of_a_folder_or_pattern_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, x in (("b.csv", 2), ("a.csv", 1), ("_c.csv", 3), (".d.csv", 4), ("e.md", 5)):
        (tmp_path / name).write_text(f"x\n{x}\n")
    for where in ("", "*.csv"):
        blocks = list(delimited.blocks(tmp_path, where, {"x": FLOAT}))
        assert [(block.file, block.row, block.columns["x"].tolist()) for block in blocks] == [
            ("a.csv", 0, [1.0]),
            ("b.csv", 0, [2.0]),
        ]
    for folder in ("_temporary", "deep", "deep/.hidden"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f.csv").write_text("x\n6\n")
    for where, files in (("**/*.csv", ["a.csv", "b.csv", "deep/f.csv"]), ("_temporary/*.csv", ["_temporary/f.csv"])):
        assert [block.file for block in delimited.blocks(tmp_path, where, {"x": FLOAT})] == files
    fails(FetchError, lambda: list(delimited.blocks(tmp_path, "c.csv", {"x": FLOAT})), "c.csv", "a.csv, b.csv")
    fails(FetchError, lambda: list(delimited.blocks(tmp_path, "c*", {"x": FLOAT})), "no file to read")


def test_nothing_follows_a_fault(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n2\nz\n4\n")
    blocks = delimited.blocks(tmp_path, "t.csv", {"x": FLOAT}, rows=1)
    assert [next(blocks).row, next(blocks).row] == [0, 1]
    fails(SchemaError, lambda: next(blocks), "'z' at row 2")


def test_columns_side_by_side_make_a_vector(tmp_path: Path) -> None:
    data = "a,b,c\n1,2,3\n4,5,6\n"
    got = csv(tmp_path, data, {"v": Feature("float32", (2,)), "k": WHOLE}, columns={"v": ["c", "a"], "k": "b"})
    assert got["v"].tolist() == [[3, 1], [6, 4]]
    assert got["k"].tolist() == [2, 5]
    fails(
        ParameterError, lambda: csv(tmp_path, data, {"v": Feature("float32", (3,))}, columns={"v": ["c", "a"]}),
        "2 columns", "(3,)",
    )  # fmt: skip
    fails(
        SchemaError, lambda: csv(tmp_path, "a,b\n1,x\n", {"v": Feature("float32", (2,))}, columns={"v": ["a", "b"]}),
        "column 'b': 1 not a number", "'x'",
    )  # fmt: skip
