from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import scaffold_samples as samples

from datasets.errors import ParameterError, SchemaError
from datasets.schema import Feature
from tasks.scaffold_columns import Column, Table
from tasks.scaffold_tables import classes_of, label_of, look_at_table, roles_of
from tasks.scaffold_text import Place, render


def column(name: str, values: list[str], *, rows: int = 100, missing: int = 0, number: bool = False) -> Column:
    made = Column(
        name, "number" if number else "text", rows, missing, Counter(dict.fromkeys(values, rows // len(values)))
    )
    made._count, made.spread, made.widest = (rows if number else -1), 1.0, 5
    return made


KIND, COLOUR, AGE = column("kind", ["a", "b"]), column("colour", ["x", "y"]), column("age", ["1", "2"], number=True)
LABEL, NAME = column("Label", ["0", "1"], number=True), column("name", [str(i) for i in range(99)])


@pytest.mark.parametrize(
    ("columns", "asked", "found"),
    [([AGE, KIND], None, KIND), ([AGE, KIND, COLOUR, LABEL], None, LABEL), ([KIND, COLOUR], "colour", COLOUR),
     ([NAME, KIND, AGE], None, KIND)],
)  # fmt: skip
def test_the_column_that_is_predicted(columns: list[Column], asked: str | None, found: Column) -> None:
    assert label_of(Table("delimited", ["a.csv"], columns, 100), asked) is found


@pytest.mark.parametrize(("columns", "asked"), [([KIND, COLOUR], None), ([AGE, NAME], None), ([KIND], "no")])
def test_what_is_predicted_cannot_be_told(columns: list[Column], asked: str | None) -> None:
    with pytest.raises(ParameterError):
        label_of(Table("delimited", ["a.csv"], columns, 100), asked)


def test_classes_are_ordered_by_number_or_by_letter() -> None:
    assert classes_of(column("c", ["10", "9", "1"])) == ("1", "9", "10")
    assert classes_of(column("c", ["b", "10", "a"])) == ("10", "a", "b")


@pytest.mark.parametrize(
    ("bad", "said"),
    [(column("c", ["a", "b"], missing=3), "missing"), (column("c", ["a", ""]), "missing"),
     (column("c", ["a"]), "no classes"), (column("c", [str(i) for i in range(60)]), "no classes")],
)  # fmt: skip
def test_labels_that_are_no_classes(bad: Column, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        classes_of(bad)
    assert caught.value.facts["field"] == "c"


def test_numbers_that_are_not_whole_are_no_classes() -> None:
    bad = column("c", ["0.5", "1"], number=True)
    bad.whole = False
    with pytest.raises(SchemaError, match="no classes"):
        classes_of(bad)


def test_what_becomes_of_columns() -> None:
    gaps, same, dates = (
        column("gaps", ["1", "2"], missing=5, number=True),
        column("same", ["1"], number=True),
        Column("d", "timestamp"),
    )
    key, lists, odd = column("year", ["1", "2"], number=True), Column("v", "list", 100), Column("w", "list", 100)
    same.spread, key.in_folder, lists.length, odd.length = 0.0, True, 3, -1
    identity = column("user_id", ["1", "2"], number=True)
    roles = roles_of([AGE, gaps, COLOUR, NAME, same, dates, key, lists, odd, identity, Column("none")])
    assert (roles.numbers, roles.filled, roles.classes, roles.texts, roles.lists) == (
        [AGE],
        [gaps],
        [COLOUR],
        [NAME],
        [lists],
    )
    assert [what.split(" ")[0] for what in roles.left_out] == ["same", "d", "year", "w", "user_id", "none"]


def test_files_that_are_named_after_splits(tmp_path: Path) -> None:
    for name in ("train_1.csv", "train_2.csv", "test.csv"):
        samples.table(tmp_path / name)
    sketch = look_at_table("delimited", Place(tmp_path), tmp_path, "kind")
    assert sketch.splits == '{"train": Files("train"), "test": Files("test")}'
    assert sketch.rows == 1200
    (tmp_path / "test.csv").rename(tmp_path / "more.csv")
    assert "Files" not in str(look_at_table("delimited", Place(tmp_path), tmp_path, "kind").splits)


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,label\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    with pytest.raises(SchemaError, match="no column is left") as caught:
        look_at_table("delimited", Place(tmp_path, "a.csv", where="a.csv"), tmp_path, None)
    assert "id" in caught.value.facts["got"]


def test_a_table_of_texts_gives_its_text_to_the_model(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(40)))
    sketch = look_at_table("delimited", Place(tmp_path, "a.csv", where="a.csv"), tmp_path, None)
    assert sketch.inputs == "text"
    assert sketch.features["text"].shape == (8,)
    assert sketch.left_out == []


def test_a_column_that_would_decide_a_split_is_named(tmp_path: Path) -> None:
    owner = column("user_id", ["7", "8", "9"], number=True)
    day = Column("day", "timestamp", 100)
    unique = column("row_id", [str(i) for i in range(100)], number=True)
    found = roles_of([owner, day, unique]).left_out
    assert "ByHash" in found[0]
    assert "ByTime" in found[1]
    assert found[2] == "row_id (it says which row it is)"


def test_decimals_that_are_asked_for_are_a_number_to_estimate(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i / 8 + 0.01:.3f},{i % 3}\n" for i in range(90))
    (tmp_path / "a.csv").write_text(f"rooms,price,kind\n{rows}")
    place = Place(tmp_path, "a.csv", where="a.csv")
    sketch = look_at_table("delimited", place, tmp_path, "price")
    assert sketch.features["label"] == Feature("float32")
    assert '"label": Standardise()' in sketch.transforms
    assert "price by 2 inputs" in sketch.about
    assert "classes" not in sketch.about
    text = render("flats", sketch, "x")
    assert "stratify" not in text
    assert "class_weights" not in text
    made: dict[str, Any] = {}
    exec(compile(text, "datasets/flats.py", "exec"), made)
    assert made["DATASET"].gate.metric == "rmse"
    for label in ("rooms", "kind"):  # whole numbers stay classes
        assert look_at_table("delimited", place, tmp_path, label).features["label"].classes


def test_few_decimals_are_no_number_to_estimate(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("rooms,price\n" + "".join(f"{i},{i % 5 + 0.5}\n" for i in range(90)))
    with pytest.raises(SchemaError, match="no classes"):
        look_at_table("delimited", Place(tmp_path, "a.csv", where="a.csv"), tmp_path, "price")
