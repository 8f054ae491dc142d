from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.ragged import Ragged
from datasets.schema import Feature
from tasks.split_summary import SplitSummary

FEATURES = {
    "x": Feature("float64"), "list": Feature("float32", (None,), low=0), "text": Feature("string"),
    "y": Feature("int32", classes=("a", "b")),
}  # fmt: skip
ORIGIN = [["raw.csv", 0, 100]]


def columns(rows: int = 30, first: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, first + rows)
    return {
        "x": np.sin(numbers), "y": (numbers % 2).astype(np.int32),
        "list": Ragged.of_items([np.arange(n % 4) for n in numbers], "float32"),
        "text": Ragged.of_items(["é" * (n % 3) for n in numbers], of="string"),
    }  # fmt: skip


def test_parts_sum_up_to_the_whole() -> None:
    whole = SplitSummary("train", FEATURES, ORIGIN)
    whole.add(columns(20))
    whole.add(columns(10, 20))
    parts = [SplitSummary("train", FEATURES, ORIGIN), SplitSummary("train", FEATURES, ORIGIN, 20)]
    parts[0].add(columns(20))
    parts[1].add(columns(10, 20))
    parts[0].merge(parts[1])
    one, other = whole.to_json(), parts[0].to_json()
    for key in ("mean", "std"):
        assert one["features"]["x"].pop(key) == pytest.approx(other["features"]["x"].pop(key), rel=1e-12)
    assert one == other
    assert one["classes"]["y"] == {"a": 15, "b": 15}


def test_of_varying_lengths_the_lengths_are_summed_up() -> None:
    made = SplitSummary("train", FEATURES, ORIGIN)
    made.add(columns(12))
    text = made.to_json()["features"]["text"]
    assert (text["of"], text["min"], text["max"], text["mean"], text["count"]) == ("length", 0, 4, 2, 12)


def test_a_bad_value_in_a_list_is_placed() -> None:
    made = SplitSummary("train", FEATURES, ORIGIN, first=50)
    bad = columns(10)
    bad["list"].values[bad["list"].offsets[7] + 1] = -3
    with pytest.raises(SchemaError) as caught:
        made.add(bad)
    facts = caught.value.facts
    assert (facts["field"], facts["record"], facts["row"], facts["got"]) == ("list", 57, 7, -3.0)


def test_a_list_where_an_array_belongs_and_the_other_way_round() -> None:
    for name, other in (("list", np.zeros((10, 3), np.float32)), ("list", columns(9)["list"]), ("text", None)):
        wrong = columns(10)
        wrong[name] = Ragged.of_items([[1]] * 10, "int32") if other is None else other
        with pytest.raises(SchemaError, match="layout"):
            SplitSummary("train", FEATURES, ORIGIN).add(wrong)
