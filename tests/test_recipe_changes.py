"""Every field of the recipe can be set, strictly, from a command line and from the form."""

from __future__ import annotations

from typing import Any

import pytest

from datasets.errors import ParameterError, UnknownNameError
from flows.train import options, train
from tasks.command import Command
from tasks.recipe_changes import SETTABLE, assigned, recipe_changes
from tasks.request import check

NAN = float("nan")


def parsed(*arguments: str) -> dict[str, Any]:
    given = vars(options(Command("flows.train", "")).parser.parse_args(["mnist", *arguments]))
    return {name: value for name, value in given.items() if value is not None and name not in ("json", "debug")}


def test_a_command_line_reaches_every_field_of_the_recipe() -> None:
    values = {
        "model": "mlp", "epochs": "2", "batch_size": "64", "learning_rate": "1e-3", "optimizer": "sgd",
        "optimizer_options": '{"momentum": 0.9}', "schedule": "constant", "schedule_options": "{}", "warmup": "0",
        "weight_decay": "0.1", "decay": "all", "clip_norm": "1.0", "accumulate": "2", "ema": "0.99",
        "precision": "bfloat16", "label_smoothing": "0.1", "class_weights": "balanced", "dropout": "0.5",
        "huber": "null",
        "evaluate_every": "10", "early_stopping": "3", "on_nonfinite": "skip", "max_skips": "5",
        "max_skips_in_a_row": "2", "seed": "7",
    }  # fmt: skip
    assert set(values) == set(SETTABLE)
    given = parsed(*(part for name, value in values.items() for part in ("--set", f"{name}={value}")))
    assert train.validate_parameters(given)["recipe"] == given["recipe"]
    recipe = check(**given).dataset.recipe
    assert (recipe.optimizer, recipe.optimizer_options, recipe.clip_norm) == ("sgd", {"momentum": 0.9}, 1.0)
    assert (recipe.epochs, recipe.learning_rate, recipe.class_weights) == (2, 0.001, "balanced")
    assert check(**given).changed["precision"] == "bfloat16"


def test_json_has_no_tuples_and_null_is_a_value() -> None:
    given = {"class_weights": [1.0] * 10, "clip_norm": None}
    recipe = check("mnist", recipe=given).dataset.recipe
    assert (recipe.class_weights, recipe.clip_norm) == ((1.0,) * 10, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", True), ("epochs", 1.0), ("epochs", "3"), ("learning_rate", NAN), ("clip_norm", 0), ("ema", 1.5),
        ("class_weights", [True]), ("optimizer_options", 3), ("warmup", None), ("model", 3), ("seed", None),
    ],
)  # fmt: skip
def test_values_are_checked_as_in_a_dataset_file(name: str, value: Any) -> None:
    with pytest.raises((ParameterError, UnknownNameError)) as caught:
        check("mnist", recipe={name: value})
    assert caught.value.exit_status == 2


def test_an_unknown_field_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no recipe field 'clipnorm'") as caught:
        check("mnist", recipe={"clipnorm": 1.0})
    assert caught.value.cure == "did you mean clip_norm?"


@pytest.mark.parametrize("recipe", [[], "x", {"augment": []}, {1: 2}])
def test_what_can_not_be_a_recipe_is_refused(recipe: Any) -> None:
    with pytest.raises((ParameterError, UnknownNameError)):
        check("mnist", recipe=recipe)


def test_a_field_is_given_once() -> None:
    assert recipe_changes({"epochs": 2}, {"epochs": None, "seed": 1}) == {"epochs": 2, "seed": 1}
    with pytest.raises(ParameterError, match="given twice"):
        recipe_changes({"epochs": 2}, {"epochs": 2})
    with pytest.raises(ParameterError, match="set twice"):
        assigned(assigned(None, "epochs=2"), "epochs=3")


@pytest.mark.parametrize("text", ["epochs", "=3", ""])
def test_an_assignment_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ParameterError, match="NAME=VALUE"):
        assigned({}, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1e-3", 1e-3), ("sgd", "sgd"), ("null", None), ('{"x": [1]}', {"x": [1]}), ("a=b", "a=b"), ("", "")],
)  # fmt: skip
def test_a_value_is_json_or_text(text: str, value: Any) -> None:
    assert assigned({"a": 0}, f"b={text}") == {"a": 0, "b": value}
