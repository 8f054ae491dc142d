from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import datasets
from datasets.schema import Block, Feature
from tasks.scaffold_text import (
    Place,
    Sketch,
    bracketed,
    escaped,
    feature_text,
    import_lines,
    quoted,
    recipe_text,
    record_line,
)


def sketch(rows: int = 1000, counts: dict[str, int] | None = None, model: str = "mlp") -> Sketch:
    features = {"x": Feature("float32", (2,)), "label": Feature("int32", classes=("a", "b"))}
    return Sketch("About", Place(Path("/data")), features, "FEATURES", "x", "label", "pass", "All.", rows,
                  counts or {"a": 500, "b": 500}, model=model)  # fmt: skip


def test_places_are_relative_to_the_datasets_where_they_are_there() -> None:
    assert Place(Path("/data/pets")).source() == '    source=Source(folder="/data/pets", pattern="**"),'
    inside = Place(datasets.FOLDER / "raw" / "pets", "a.csv").source()
    assert inside == '    source=Source(folder="raw/pets", files=(RawFile("a.csv"),)),'


@pytest.mark.parametrize(("rows", "batch", "epochs"), [(1_000_000, 128, 5), (1000, 64, 30), (60, 4, 30), (5, 1, 30)])
def test_recipes_have_several_batches_an_epoch(rows: int, batch: int, epochs: int) -> None:
    text = recipe_text(sketch(rows))
    assert f"batch_size={batch}," in text
    assert f"epochs={epochs}," in text
    assert "class_weights" not in text


def test_uneven_classes_are_balanced() -> None:
    assert 'class_weights="balanced"' in recipe_text(sketch(counts={"a": 901, "b": 99}))


def test_the_worked_record() -> None:
    block = Block({"x": np.array([[0.5, 2]], np.float32), "label": np.array([1], np.int32)}, "a.csv", 0)
    assert record_line(block, sketch()) == "Record 0 (a.csv, row 0): x float32 [0.5, 2]; label 1 (b)."


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "é", "\udcff", "'"])
def test_any_name_can_be_written(name: str) -> None:
    assert eval(quoted(name)) == name
    assert eval(f'"""{escaped(name)} """')
    assert escaped(name).encode()
    assert eval(feature_text(Feature("int32", classes=(name, "b")))).classes == (name, "b")


def test_many_classes_stand_on_several_lines() -> None:
    names = tuple(f"class number {i}" for i in range(60))
    text = feature_text(Feature("int32", classes=names))
    assert eval(text).classes == names
    assert max(map(len, text.splitlines())) <= 116


def test_brackets_break_as_the_formatter_does() -> None:
    assert bracketed("f(", ["a", "b"], ")", 4) == "f(a, b)"
    assert bracketed("long_name(", ["a" * 60, "b" * 48], "):", 4) == f"long_name(\n    {'a' * 60}, {'b' * 48}\n):"
    assert (
        bracketed("f(", ["a" * 60, "b" * 60], ")", 4, inside=4)
        == f"f(\n        {'a' * 60},\n        {'b' * 60},\n    )"
    )


def test_imports_are_grouped() -> None:
    assert import_lines({"pathlib": {"Path"}, "datasets.schema": {"B", "A"}, "numpy as np": set()}) == (
        "from pathlib import Path\n\nimport numpy as np\n\nfrom datasets.schema import A, B"
    )
