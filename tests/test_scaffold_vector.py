from __future__ import annotations

import textwrap
from collections import Counter

import numpy as np
import pytest

from datasets.schema import Feature
from tasks.scaffold_columns import Column, Table
from tasks.scaffold_tables import Roles
from tasks.scaffold_text import number
from tasks.scaffold_vector import below, reading, vector_of


def made_of() -> Roles:
    weight = Column("weight", "number")
    label = Column("label", "text", values=Counter({"b": 1, "a": 1}))  # a column of that name that isn't the label
    return Roles([weight], [Column("age", "number", low=-30.5)], [Column("v", "list", length=3)],
                 [label], [Column("inputs", "text", widest=9)])  # fmt: skip


TARGET = Column("kind", "text", values=Counter({"x": 1, "y": 1}))


def test_widths_add_up_and_names_stay_free() -> None:
    vector = vector_of(made_of(), TARGET, ("x", "y"))
    assert vector.width == 1 + 1 + 3 + 2
    assert list(vector.read_as) == ["numbers", "age", "v", "label_column", "inputs_column", "label"]
    assert vector.columns == {
        "numbers": '("weight",)', "label_column": '"label"', "inputs_column": '"inputs"', "label": '"kind"',
    }  # fmt: skip
    assert vector.read_as["inputs_column"] == Feature("uint8", (16,))
    assert vector.read_as["label_column"].classes == ("a", "b")
    assert vector.joined == ["numbers", "age", "v", "label_column"]


def test_what_is_learned_is_left_to_the_train_split() -> None:
    vector = vector_of(made_of(), TARGET, ("x", "y"))
    assert vector.transforms == {
        "numbers": "Standardise()", "age": "(Impute(missing=-100.0), Standardise())", "label_column": "OneHot()",
    }  # fmt: skip
    assert vector.helpers() == {"Impute", "OneHot", "SideBySide", "Standardise"}
    code = "".join(line.strip() for line in vector.transforms_code().splitlines())
    assert code.endswith('"inputs": SideBySide("numbers", "age", "v", "label_column"),},')
    compile(f"dict({vector.transforms_code().strip()})", "a.py", "exec")


@pytest.mark.parametrize("low", [0.0, 5.5, -0.001, -1.0, -9.9999, -10.0, -99999.6, -3e30])
def test_what_stands_for_a_missing_value_is_less_than_all_that_are_there(low: float) -> None:
    assert np.float32(float(number(below(low)))) < np.float32(low)


def test_the_body_of_read_is_python() -> None:
    vector = vector_of(made_of(), TARGET, ("x", "y"))
    text = reading(Table("delimited", ["a.csv"], [], 1, ";"), "a.csv", vector)
    compile(f"def read(raw):\n{textwrap.indent(text, '    ')}", "a.py", "exec")
    assert 'delimiter=";"' in text
    assert 'fill={"age": -100.0}' in text
    assert all(len(line) <= 116 for line in text.splitlines())
