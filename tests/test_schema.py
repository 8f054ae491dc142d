"""Declarations are checked when they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from datasets.errors import ParameterError, SchemaError, UnknownNameError
from datasets.gate import Gate
from datasets.mnist import DATASET
from datasets.schema import ByFraction, ByHash, ByTime, Feature, Recipe, Rows
from datasets.transforms import Impute, Standardise

HALVES = {"train": 0.5, "test": 0.5}


@pytest.mark.parametrize("dtype", ["str", "object", "datetime64[s]", "complex64", "S3", "nonsense", "float31"])
def test_a_feature_holds_numbers(dtype: str) -> None:
    with pytest.raises(SchemaError, match="a feature holds numbers") as caught:
        Feature(dtype)
    assert caught.value.facts["got"] == dtype


@pytest.mark.parametrize("shape", [(0,), (-1,), (28, 2.0), (True,), ("3",)])
def test_a_shape_is_made_of_whole_numbers(shape: Any) -> None:
    with pytest.raises(SchemaError, match="whole numbers above 0"):
        Feature("uint8", shape)


def test_bounds_of_a_label_come_from_its_classes() -> None:
    assert Feature("int32", classes=("a", "b", "c")).bounds == (0, 2)
    assert Feature("float32", low=-1, high=1).bounds == (-1, 1)
    assert Feature("float32").bounds == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": "picture"}, "feature 'picture' isn't declared"),
        ({"label": "digit"}, "feature 'digit' isn't declared"),
        ({"label": "image"}, "the label has no classes"),
        ({"splits": {"train": Rows(0, 1)}}, "a train and a test split"),
        ({"splits": {}}, "a train and a test split"),
        ({"splits": ByHash("label", {"train": 0.5})}, "a train and a test split"),
        ({"splits": {"train": ByHash("label", HALVES), "test": Rows(0, 1)}}, "'train' has a rule for all splits"),
        ({"splits": ByHash("user", HALVES)}, "need feature 'user'"),
        ({"splits": ByFraction(HALVES, stratify="user")}, "need feature 'user'"),
        ({"splits": ByTime("day", {"train": (None, 3), "test": (3, None)})}, "need feature 'day'"),
        ({"splits": ByFraction(HALVES, stratify="image")}, "by one number each"),
        ({"splits": ByTime("image", {"train": (None, 3), "test": (3, None)})}, "by one number each"),
        ({"splits": ByHash("x", HALVES), "features": {**DATASET.features, "x": Feature("float32")}}, "whole numbers"),
    ],
)
def test_a_dataset_that_does_not_fit_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        replace(DATASET, **changes)


NUMBER = {"features": {**DATASET.features, "label": Feature("float32")}, "recipe": Recipe(), "gate": Gate()}


def test_a_label_that_is_a_number_is_gated_by_its_error() -> None:
    made = replace(DATASET, **NUMBER)
    assert made.gate == Gate(metric="rmse")
    assert replace(made, gate=Gate(metric="r2", maximum={"mae": 3.0})).gate.metric == "r2"
    assert DATASET.gate.metric == "accuracy"
    assert replace(made, recipe=Recipe(huber=1.5)).recipe.huber == 1.5
    with pytest.raises(ParameterError, match="huber is for numbers"):
        replace(DATASET, recipe=Recipe(huber=1.5))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"recipe": Recipe(class_weights="balanced")}, ParameterError, "class_weights is for classes"),
        ({"recipe": Recipe(class_weights=(1.0, 2.0))}, ParameterError, "class_weights is for classes"),
        ({"recipe": Recipe(label_smoothing=0.1)}, ParameterError, "label_smoothing is for classes"),
        ({"gate": Gate(metric="rmse", max_class_drop=0.1)}, ParameterError, "a number has no classes"),
        ({"gate": Gate(max_bytes=10)}, UnknownNameError, "metric of the gate"),  # it is still about accuracy
        ({"features": {**DATASET.features, "label": Feature("float32", (2,))}}, SchemaError, "isn't a number"),
        ({"features": {**DATASET.features, "label": Feature("int32")}}, SchemaError, "isn't a number"),
        ({"transforms": {"label": (Standardise(), Standardise())}}, SchemaError, "only be standardised"),
        ({"transforms": {"label": Impute(missing=-1.0)}}, SchemaError, "only be standardised"),
    ],
)
def test_what_makes_no_sense_for_a_number_is_refused(changes: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        replace(DATASET, **{**NUMBER, **changes})
