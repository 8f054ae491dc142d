"""Declarations are checked when they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from datasets.errors import SchemaError
from datasets.mnist import DATASET
from datasets.schema import ByFraction, ByHash, ByTime, Feature, Rows

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
