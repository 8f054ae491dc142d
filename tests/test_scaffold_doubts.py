"""Tables as people write them, with the slips that are easily made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from datasets.errors import SchemaError
from tasks.scaffold import scaffold
from tasks.scaffold_columns import Column
from tasks.scaffold_doubts import odd_numbers
from tasks.scaffold_look import look
from tasks.scaffold_text import Sketch, render

ROWS = 120


def seen(folder: Path, header: str, row: str, *, kinds: tuple[str, ...] = ("a", "b"), end: str = "\n") -> Sketch:
    lines = [header, *(row.format(i=i, kind=kinds[i % len(kinds)]) for i in range(ROWS))]
    (folder / "a.csv").write_bytes((end.join(lines) + end).encode())
    return look(folder / "a.csv", None)


@pytest.mark.parametrize("values", [["0,5", "7"], ["1.234,50"], ["1,234"], ["5%"], ["$ 12"], ["1 000", "2 000"]])
def test_numbers_that_are_written_otherwise(values: list[str]) -> None:
    column = Column("x")
    column.add(pa.array(values))
    assert odd_numbers(column) == f"{values[0]!r} isn't written as one such as 1234.5"


def test_a_few_odd_ones_among_numbers_and_columns_of_another_kind() -> None:
    column = Column("x")
    column.add(pa.array([*map(str, range(19)), "unknown", "NA"]))
    assert odd_numbers(column) == "1 of 20 values, 'unknown' isn't written as one such as 1234.5"
    for values in (["a", "1"], ["1", "2"], ["NA", ""], ["a1", "b2"], ["2026-03-01"]):
        column = Column("x")
        column.add(pa.array(values))
        assert odd_numbers(column) == ""


def test_it_is_in_the_file_and_among_what_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = seen(tmp_path, "x;z;label", "{i},5;{i};{kind}")
    assert sketch.doubts == ["x is no column of numbers: '0,5' isn't written as one such as 1234.5"]
    assert "Is it meant so? x is no column of numbers" in render("mine", sketch, "x")
    monkeypatch.setattr("datasets.FOLDER", tmp_path)
    assert scaffold("mine", str(tmp_path / "a.csv"))["doubts"] == sketch.doubts


@pytest.mark.parametrize("kinds", [("Yes", "yes", "no"), ("1", "01", "2")])
def test_classes_that_are_nearly_one_are_told(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    (doubt,) = seen(tmp_path, "x,label", "{i},{kind}", kinds=kinds).doubts
    assert doubt == f"{kinds[0]!r} and {kinds[1]!r} are different classes"


@pytest.mark.parametrize("kinds", [("cat", " cat", "dog"), ("caf\u00e9", "cafe\u0301", "dog"), ("a", "a\u200b", "b")])
def test_classes_that_look_the_same_are_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match="only by spaces or by their Unicode form") as caught:
        seen(tmp_path, "x,label", "{i},{kind}", kinds=kinds)
    assert caught.value.facts["got"] == ", ".join(map(ascii, kinds[:2]))


@pytest.mark.parametrize("header", ["0.5,0.1,a", "3,1,4"])
def test_a_first_row_is_not_lost_as_names(tmp_path: Path, header: str) -> None:
    with pytest.raises(SchemaError, match="the first line looks like data"):
        seen(tmp_path, header, "{i},0.5,{kind}")


def test_numbers_may_be_names(tmp_path: Path) -> None:
    assert seen(tmp_path, "400.5,401,label", "{i},1{i},{kind}").doubts == []
    assert seen(tmp_path, "0,1,2", "{i},1{i},{kind}").label == "label"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_ends_of_lines_of_other_systems(tmp_path: Path, end: str) -> None:
    assert seen(tmp_path, "x,label", "{i},{kind}", end=end).rows == ROWS


def test_a_column_that_one_file_lacks_is_left_out_and_a_label_is_refused(tmp_path: Path) -> None:
    seen(tmp_path, "x,z,label", "{i},2{i},{kind}")
    first = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(first.replace("x,z,label", "x,w,label"))
    sketch = look(tmp_path, None)
    assert sketch.left_out == ["z (it isn't in b.csv)", "w (it isn't in a.csv)"]
    (tmp_path / "b.csv").write_text(first.replace(",", ";"))
    with pytest.raises(SchemaError, match="column 'label' not found") as caught:
        look(tmp_path, "label")
    assert Path(caught.value.facts["file"]).name == "b.csv"
    assert caught.value.cure == "is the delimiter ';'?"


def test_arrays_and_folders_are_doubted_too(tmp_path: Path) -> None:
    labels = np.array(["Cat", "cat", "dog", "emu"] * 5)
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 3, 8, 8), np.uint8), y=labels)
    first, near = look(tmp_path / "a.npz", None).doubts
    assert first.startswith("pictures of [3, 8, 8] have their channels first")
    assert near == "'Cat' and 'cat' are different classes"
    for name in ("Cat", "cat"):
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "p" / name / "1.png")
    assert look(tmp_path / "p", None).doubts == [near]
    (tmp_path / "p" / "cat ").mkdir()
    with pytest.raises(SchemaError, match="differ only by Unicode form or spaces"):
        look(tmp_path / "p", None)
