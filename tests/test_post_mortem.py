"""What a report of a capsule is made of; the whole command is tested in test_replay.py."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from datasets.augment import Shift
from datasets.errors import ParameterError
from datasets.mnist import DATASET
from tasks.artifact import Artifact
from tasks.capsule import Capsule
from tasks.post_mortem import changes, context, rebuilt, show

RECIPE = replace(DATASET.recipe, class_weights=(1.0,) * 10, optimizer_options={"b1": 0.5}, augment=(Shift(1),), ema=0.9)


def capsule(values: dict[str, Any]) -> Capsule:
    return cast(Capsule, SimpleNamespace(context=json.loads(json.dumps(values)), path=Path("capsule")))


def test_a_recipe_comes_back_through_json_without_its_augmentations() -> None:
    records = Artifact("records", "mnist", "key", "digest")
    made = context("mnist", RECIPE, 70, np.ones(10, np.float32), records, {"code": {"a:b": "1"}, "other": 2})
    assert rebuilt(capsule(made)).recipe == replace(RECIPE, augment=())
    assert (made["total_steps"], made["class_weights"], made["code"]) == (70, [1.0] * 10, {"a:b": "1"})
    assert Artifact(**made["records"]) == records


def test_a_capsule_that_says_nothing() -> None:
    with pytest.raises(ParameterError, match="doesn't say how to build its step"):
        rebuilt(capsule({"note": "made by hand"}))


def test_changes_name_old_and_new() -> None:
    assert changes({"jax": "1", "numpy": "2", "gone": "3"}, {"jax": "1", "numpy": "4", "new": "5"}) == [
        "numpy: 2 -> 4", "gone: 3 -> absent",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ([], "it takes several of them together"),
        ([{"record": 3, "file": "raw.csv", "row": 9}], "record 3 of the train split: raw.csv, row 9"),
        ([{"record": 3, "file": None, "row": None}], "its records are gone"),
        ([{"record": i, "file": "f", "row": i} for i in range(16)], "each of the batch fails alone"),
        ([{"record": i, "file": "f", "row": i} for i in range(12)], "12 of 16 in all"),
    ],
)
def test_what_is_said_of_the_examples(examples: list[dict[str, Any]], said: str) -> None:
    report = {
        "capsule": "c", "step": 4, "dataset": "mnist", "kind": "grad", "loss": "1.5", "reproduced": False,
        "versions": ["jax: 1 -> 2"], "code": [], "line": None, "nan_line": "x.py:1 in f: y", "leaves": ["head/bias"],
        "examples": examples, "batch": 16,
    }  # fmt: skip
    file = io.StringIO()
    show(report, Console(file=file, width=200))
    text = file.getvalue()
    assert said in text
    assert "jax: 1 -> 2" in text
    assert "NO: the batch gives another result here" in text
    assert "head/bias" in text
    assert "x.py:1 in f: y" in text


def test_the_step_is_that_of_transformed_batches_if_the_capsule_holds_such() -> None:
    import datasets
    from datasets.schema import Feature
    from datasets.transforms import Standardise
    from tasks.fitted import Fitted, Step

    seen = Feature("float32", (28, 28, 1))
    step = Step("image", Standardise(), {"mean": [33.0], "scale": [0.01]}, seen)
    fitted = Fitted(datasets.load("mnist").features, (step,))
    records = Artifact("records", "mnist", "k", "d")
    made = context("mnist", RECIPE, 70, None, records, {}, fitted)
    assert rebuilt(capsule(json.loads(json.dumps(made)))).features["image"] == seen
    assert rebuilt(capsule(context("mnist", RECIPE, 70, None, records, {}))).features["image"].dtype == "uint8"
