from __future__ import annotations

import textwrap
from collections import Counter

from datasets.schema import Feature
from tasks.scaffold_columns import Column, Table
from tasks.scaffold_tables import Roles
from tasks.scaffold_vector import reading, vector_of


def made_of() -> Roles:
    weight = Column("weight", "number", mean=2.0, spread=0.5)
    label = Column("label", "text", values=Counter({"b": 1, "a": 1}))  # a column of that name that isn't the label
    return Roles([weight], [Column("age", "number", mean=30.123456, spread=4.0)], [Column("v", "list", length=3)],
                 [label], [Column("inputs", "text", widest=9)])  # fmt: skip


TARGET = Column("kind", "text", values=Counter({"x": 1, "y": 1}))


def test_widths_add_up_and_names_stay_free() -> None:
    vector = vector_of(made_of(), TARGET, ("x", "y"))
    assert vector.width == 1 + 1 + 3 + 2
    assert list(vector.read_as) == ["numbers", "age", "v", "label_column", "inputs_column", "label"]
    assert vector.columns == {
        "numbers": "tuple(NUMBERS)", "label_column": '"label"', "inputs_column": '"inputs"', "label": '"kind"',
    }  # fmt: skip
    assert vector.features == {
        "inputs": Feature("float32", (7,)), "inputs_column": Feature("uint8", (16,)),
        "label": Feature("int32", classes=("x", "y")),
    }  # fmt: skip
    assert vector.read_as["label_column"].classes == ("a", "b")
    assert vector.helpers() == {"one_hot", "standardised", "side_by_side"}


def test_the_body_of_read_is_python() -> None:
    vector = vector_of(made_of(), TARGET, ("x", "y"))
    text = reading(Table("delimited", ["a.csv"], [], 1, ";"), "a.csv", vector)
    compile(f"def read(raw):\n{textwrap.indent(text, '    ')}", "a.py", "exec")
    assert 'delimiter=";"' in text
    assert 'fill={"age": 30.12}' in text
    assert 'standardised(block.columns["age"], 30.12, 4.0)' in text
    assert all(len(line) <= 116 for line in text.splitlines())
