from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import grain
import pytest

from datasets.augment import Crop, Shift
from datasets.errors import ParameterError
from tasks.transform_identity import identity_of_augmentation, identity_of_transform


@dataclass(frozen=True)
class Above(grain.transforms.Filter):
    least: Any = 1

    def filter(self, element: Any) -> bool:
        return True


class Plain(grain.transforms.Map):
    def map(self, element: Any) -> Any:
        return element


class Hidden(Plain):
    def __init__(self) -> None:
        self.factor = 2


class Slotted(Plain):
    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 2


def test_an_identity_is_the_class_and_its_parameters_as_json_gives_them_back() -> None:
    assert identity_of_augmentation(Shift(2)) == {"class": "Shift", "pixels": 2}
    assert identity_of_augmentation(Crop(2)) != identity_of_augmentation(Crop(3))
    assert identity_of_transform(Above((1, 2))) == {"class": "Above", "least": [1, 2]}
    assert identity_of_transform(Plain()) == {"class": "Plain"}
    assert json.loads(json.dumps(identity_of_transform(Above()))) == identity_of_transform(Above())


@pytest.mark.parametrize("wrong", [Shift, lambda images, u: images, 3])
def test_what_is_no_augmentation(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"augmentation|draws"):
        identity_of_augmentation(wrong)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (len, "no transform"), (Hidden(), "parameters that no state"), (Slotted(), "parameters that no state"),
        (Above(b"x"), "isn't JSON"),
    ],
)  # fmt: skip
def test_what_no_state_could_name(wrong: Any, why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        identity_of_transform(wrong)
