from __future__ import annotations

import numpy as np
import pytest
import toy

from datasets.errors import SchemaError
from datasets.schema import Feature
from tasks import slices as module
from tasks.slices import OTHERS, parts, score_slices, slice_columns


def test_values_are_slices_in_their_order() -> None:
    column = np.array([11, 9, 11, 10], np.int32)
    made = parts(column, Feature("int32"))
    assert list(made) == ["9", "10", "11"]
    np.testing.assert_array_equal(made["11"], [True, False, True, False])


def test_classes_have_their_names_and_bools_theirs() -> None:
    assert list(parts(np.array([1, 0]), Feature("int32", classes=("web", "shop")))) == ["web", "shop"]
    assert list(parts(np.array([True, False]), Feature("bool"))) == ["False", "True"]


def test_what_is_rare_is_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    made = parts(np.array([1, 2, 2, 3, 3, 3, 4]), Feature("int32"))
    assert list(made) == ["2", "3", OTHERS]
    np.testing.assert_array_equal(made[OTHERS], [True, False, False, False, False, False, True])
    assert sum(rows.sum() for rows in made.values()) == 7


def test_metrics_of_a_slice_are_those_of_its_examples() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0])
    logits = np.array([[2, 0], [0, 2], [0, 2], [0, 2], [2, 0], [2, 0]], np.float32)
    losses = np.arange(6, dtype=np.float32)
    country = np.array([0, 0, 0, 1, 1, 1])
    made = score_slices({"country": parts(country, Feature("int32", classes=("de", "fr")))}, labels, logits, losses)
    assert made["country"]["de"] == {
        "examples": 3, "correct": 2, "accuracy": 2 / 3, "loss": 1.0,
        "intervals": {"accuracy": made["country"]["de"]["intervals"]["accuracy"],
                      "loss": made["country"]["de"]["intervals"]["loss"]},
    }  # fmt: skip
    assert (made["country"]["fr"]["correct"], made["country"]["fr"]["loss"]) == (2, 4.0)
    low, high = made["country"]["fr"]["intervals"]["accuracy"]
    assert low <= 2 / 3 <= high


def test_a_dataset_names_its_slices() -> None:
    features = {**toy.dataset().features, "place": Feature("int32", classes=("a", "b"))}
    dataset = toy.dataset(features=features, slices=("place",))
    made = slice_columns(dataset, {"place": np.array([0, 1, 1])})
    np.testing.assert_array_equal(made["place"]["b"], [False, True, True])
    assert slice_columns(toy.dataset(), {}) == {}


@pytest.mark.parametrize(
    ("name", "feature", "says"),
    [
        ("nowhere", None, "isn't declared"),
        ("x", Feature("float32"), "whole number"),
        ("x", Feature("int8", (2,)), "one"),
    ],
)
def test_slices_that_can_not_be_made(name: str, feature: Feature | None, says: str) -> None:
    features = {**toy.dataset().features, **({"x": feature} if feature else {})}
    with pytest.raises(SchemaError, match=says):
        toy.dataset(features=features, slices=(name,))
