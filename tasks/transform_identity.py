"""What names a change of the examples in the state of a training: its class and its parameters."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import grain

from datasets.augment import Augmentation
from datasets.errors import ParameterError


def identity_of_augmentation(augmentation: Augmentation) -> dict[str, Any]:
    """Class and parameters of an augmentation, as JSON.

    Raises:
        ParameterError: It is no dataclass, or doesn't say what it draws.
    """
    name = type(augmentation).__name__
    if isinstance(augmentation, type) or not dataclasses.is_dataclass(augmentation) or not callable(augmentation):
        raise ParameterError(
            f"{name} can't be an augmentation", got=repr(augmentation),
            expected="an object of a frozen dataclass with `draws` and `__call__(images, u)`",
        )  # fmt: skip
    if type(getattr(augmentation, "draws", None)) is not int or augmentation.draws < 0:
        raise ParameterError(f"{name} doesn't say how many random numbers it draws", expected="draws: ClassVar[int]")
    return _json_of(augmentation, dataclasses.asdict(augmentation))


def identity_of_transform(transform: object) -> dict[str, Any]:
    """Class and parameters of one of Grain's transforms, as JSON.

    Raises:
        ParameterError: It is no Map, RandomMap or Filter, or has parameters and is no dataclass.
    """
    name = type(transform).__name__
    if not isinstance(transform, (grain.transforms.Map, grain.transforms.RandomMap, grain.transforms.Filter)):
        raise ParameterError(
            f"{name} is no transform", got=repr(transform), expected="a grain.transforms.Map, RandomMap or Filter"
        )
    if dataclasses.is_dataclass(transform) and not isinstance(transform, type):
        return _json_of(transform, dataclasses.asdict(transform))
    slots = [slot for kind in type(transform).__mro__ for slot in getattr(kind, "__slots__", ())]
    if hidden := [*getattr(transform, "__dict__", {}), *slots]:
        raise ParameterError(
            f"{name} has parameters that no state can name", got=", ".join(hidden),
            expected="a frozen dataclass, or no attributes",
        )  # fmt: skip
    return _json_of(transform, {})


def _json_of(thing: object, parameters: dict[str, Any]) -> dict[str, Any]:
    try:  # once through JSON, so that it equals what a state file gives back
        return json.loads(json.dumps({"class": type(thing).__qualname__, **parameters}))
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"a parameter of {type(thing).__name__} isn't JSON", got=repr(thing), reason=str(error)
        ) from error
