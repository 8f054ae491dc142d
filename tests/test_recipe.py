"""A recipe's values are checked when it is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError, UnknownNameError
from datasets.recipe import MOST_SEED, RECIPE_FIELDS, Recipe

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
        ("huber", [0, 0.0, -1.0, NAN, INF, True, "1"]),
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
