"""Declarations are checked when they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError, SchemaError, UnknownNameError
from datasets.mnist import DATASET
from datasets.schema import MOST_SEED, RECIPE_FIELDS, Feature, Recipe, Rows, check_float, check_int

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epochs", [0, -1, 1.0, 1.5, True, "3", None, NAN]),
        ("batch_size", [0, -8, 32.0, False, "32", None]),
        ("seed", [-1, 0.0, True, "0", None, MOST_SEED + 1, 2**32, 10**30]),
        ("learning_rate", [0, 0.0, -1e-3, NAN, INF, -INF, True, "1e-3", None, 10**400, 1j, np.float32(0.1)]),
        ("warmup", [-0.1, 1, 1.0, NAN, True]),
        ("weight_decay", [-1e-4, NAN, INF, False]),
        ("label_smoothing", [1.0, -0.1, NAN]),
        ("dropout", [1.0, -0.1, NAN, "0.5"]),
        ("clip_norm", [0, 0.0, -1.0, NAN, INF, True, "1"]),
        ("ema", [0, 0.0, 1, 1.0, -0.5, NAN, True, "0.9"]),
        ("accumulate", [0, 1.0, True, None]),
        ("evaluate_every", [0, 1.0, True, "5"]),
        ("early_stopping", [0, -1, 2.0, False]),
        ("max_skips", [0, 1.0, None]),
        ("max_skips_in_a_row", [0, True]),
        ("class_weights", [(), [1.0, 2.0], "balance", (1.0, 0.0), (1.0, -1.0), (1.0, NAN), (True, 1.0), 2.0]),
        ("optimizer_options", [None, 0.9, [("b1", 0.9)]]),
        ("schedule_options", ["alpha"]),
    ],
)
def test_recipe_values_that_can_not_work(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ParameterError) as caught:
            Recipe(**{name: value})
        assert caught.value.facts["parameter"] == name
        assert name.replace("_", " ") in caught.value.what.replace("_", " ")


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("optimizer", "adamm", "adam"),
        ("schedule", "cosin", "cosine"),
        ("optimizer", 3, None),
        ("schedule", None, None),
        ("precision", "float16", "bfloat16"),
        ("on_nonfinite", "skp", "skip"),
        ("decay", "kernel", "kernels"),
        ("precision", ["bfloat16"], None),
    ],
)
def test_recipe_names_that_are_not_known(name: str, value: Any, nearest: str | None) -> None:
    with pytest.raises(UnknownNameError, match=f"there is no {name}") as caught:
        Recipe(**{name: value})
    assert (nearest in caught.value.cure) if nearest and caught.value.cure else nearest is None


def test_the_limits_themselves_work() -> None:
    recipe = Recipe(epochs=1, batch_size=1, seed=MOST_SEED, learning_rate=1, warmup=0, dropout=0, clip_norm=0.5)
    assert recipe.learning_rate == 1
    assert set(RECIPE_FIELDS) >= {"model", "epochs", "seed", "augment"}


def test_checks_say_what_they_got_and_expected() -> None:
    with pytest.raises(ParameterError) as caught:
        check_int("epochs", True, 1)
    assert caught.value.facts == {
        "parameter": "epochs", "got": "bool True", "expected": "a whole number of at least 1"
    }  # fmt: skip
    with pytest.raises(ParameterError) as caught:
        check_float("rate", 1.0, 0, 1)
    assert caught.value.facts["expected"] == "a finite number, 0 <= rate < 1"
    check_float("rate", 0, 0, 1)


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
    ],
)
def test_a_dataset_that_does_not_fit_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        replace(DATASET, **changes)
