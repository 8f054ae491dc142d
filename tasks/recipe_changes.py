"""Fields of the recipe that a run changes by name: those of the form's `recipe`, or of `--set NAME=VALUE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import RECIPE_FIELDS, Recipe

CODE = ("augment",)
"""Fields that hold Python objects, which no form and no command line can name."""
SETTABLE = tuple(name for name in RECIPE_FIELDS if name not in CODE)

BATCHED = ("learning_rate", "seed")
"""Fields in which the members of one vectorised program may differ."""


def recipe_changes(given: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that `given` and `options` make together; the recipe itself checks their values.

    Args:
        given: By field; None is a value, such as for no clipping. A list stands for a tuple, since JSON has none.
        options: Of the fields that have an option of their own; None is not given.

    Raises:
        UnknownNameError: There is no such field.
        ParameterError: It isn't a mapping, a field is given twice, or is one that only a dataset file can state.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if given is None:
        return options
    if not isinstance(given, Mapping):
        raise ParameterError("recipe is a mapping", parameter="recipe", got=repr(given), expected='{"clip_norm": 1.0}')
    for name in given:
        if name in CODE:
            raise ParameterError("this field holds code", parameter=name, cure="state it in the dataset file")
        if name not in SETTABLE:
            raise UnknownNameError.among("recipe field", name, SETTABLE)
        if name in options:
            raise ParameterError("a field is given twice", parameter=name, got=f"{options[name]!r} and {given[name]!r}")
    return {**options, **{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}}


def assigned(fields: Mapping[str, Any] | None, text: str) -> dict[str, Any]:
    """The fields with one more: "clip_norm=1.0" is {"clip_norm": 1.0}; a value is JSON, and text if it isn't.

    Raises:
        ParameterError: There is no "=", or the name is there already.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ParameterError("a field is set as NAME=VALUE", parameter="set", got=text, expected="clip_norm=1.0")
    if name in (fields or {}):
        raise ParameterError("a field is set twice", parameter=name, got=text)
    return {**(fields or {}), name: _value(value)}


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return text


def common_recipe(recipe: Recipe) -> Recipe:
    """The recipe that all members of one program have in common: with a peak of 1, and seed 0."""
    return replace(recipe, learning_rate=1.0, seed=0)
