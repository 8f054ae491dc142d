from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.prediction_parts import IDENTITY, Parts, table_of

CLASSES = ("good", "bad")
ABOUT = {"version": "v3", "dataset": "toy"}
IDENTITY_ = {"raw": [["a", 1, 2]], "model": "d"}


def table(first: int, rows: int = 4) -> pa.Table:
    p = np.linspace(0, 1, rows, dtype=np.float32)
    return table_of(["a", "b"], np.arange(rows) % 2, np.arange(first, first + rows), np.stack([p, 1 - p], 1), CLASSES,
                    ABOUT)  # fmt: skip


def test_a_row_says_where_it_is_from_and_what_the_model_says() -> None:
    made = table(7)
    assert made.schema.names == ["file", "row", "prediction", "p_good", "p_bad", "model_version"]
    assert made.column("file").to_pylist() == ["a", "b", "a", "b"]
    assert made.column("row").to_pylist() == [7, 8, 9, 10]
    assert made.column("prediction").to_pylist() == ["bad", "bad", "good", "good"]
    assert made.column("p_bad").to_pylist()[0] == 1.0
    assert set(made.column("model_version").to_pylist()) == {"v3"}
    assert json.loads(made.schema.metadata[b"gristmill"]) == ABOUT


def test_at_a_tie_the_first_class_is_predicted() -> None:
    made = table_of(["a"], np.zeros(1, int), np.zeros(1, int), np.full((1, 2), 0.5, np.float32), CLASSES, ABOUT)
    assert made.column("prediction").to_pylist() == ["good"]


def test_parts_are_joined_in_order_and_gone_afterwards(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    parts = Parts(out, IDENTITY_)
    for first in (0, 4, 8):
        parts.write(table(first))
    assert not out.exists()
    assert parts.join() == 12
    parts.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    joined = pq.read_table(out)
    assert joined.equals(pa.concat_tables([table(first) for first in (0, 4, 8)]).cast(joined.schema))
    assert json.loads(pq.read_schema(out).metadata[b"gristmill"]) == ABOUT


def test_another_process_goes_on_after_the_whole_parts(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    Parts(out, IDENTITY_).write(table(0))
    (tmp_path / "out.parquet.parts" / ".part.tmp").write_bytes(b"half")
    again = Parts(out, json.loads(json.dumps(IDENTITY_)))
    assert again.done == 1
    again.write(table(4))
    assert again.join() == 8


@pytest.mark.parametrize("other", [{**IDENTITY_, "model": "e"}, {**IDENTITY_, "raw": []}, None])
def test_parts_of_anything_else_are_never_mixed_in(tmp_path: Path, other: Any) -> None:
    out = tmp_path / "out.parquet"
    before = Parts(out, IDENTITY_)
    before.write(table(0))
    if other is None:
        (before.folder / IDENTITY).write_text("{")
    assert Parts(out, other or IDENTITY_).done == 0
    assert not list(before.folder.glob("part-*"))


def test_equal_rows_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        parts = Parts(tmp_path / name, {"out": name})
        parts.write(table(0))
        parts.join()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_number_has_no_probabilities() -> None:
    said = np.array([1.5, -2.0], np.float32)
    made = table_of(["a"], np.zeros(2, int), np.arange(2), said, (), ABOUT)
    assert made.schema.names == ["file", "row", "prediction", "model_version"]
    assert made.column("prediction").to_pylist() == [1.5, -2.0]
