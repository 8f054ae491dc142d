from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import toy

from datasets.errors import SchemaError
from datasets.schema import ByHash, Feature, in_batches


@pytest.mark.parametrize("kind", ["bytes", "string"])
def test_texts_and_bytes_are_uint8_of_any_length(kind: str) -> None:
    feature = Feature(kind)
    assert (feature.dtype, feature.shape, feature.of, feature.varies) == ("uint8", (None,), kind, True)
    assert replace(feature) == feature != Feature("uint8", (None,))


@pytest.mark.parametrize(
    "options",
    [{"dtype": "string", "shape": (3,)}, {"dtype": "bytes", "low": 0}, {"dtype": "string", "classes": ("a",)},
     {"dtype": "int32", "shape": (None,), "classes": ("a", "b")}, {"dtype": "int32", "shape": (None, 3)},
     {"dtype": "int32", "shape": (0,)}, {"dtype": "str"}],
)  # fmt: skip
def test_what_is_no_feature(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Feature(**options)


def test_a_batch_holds_what_has_one_shape() -> None:
    features = {"a": Feature("int32"), "b": Feature("string"), "c": Feature("float32", (None,))}
    assert list(in_batches(features)) == ["a"]


@pytest.mark.parametrize("role", ["inputs", "splits"])
def test_what_a_model_or_a_split_looks_at_has_one_shape(role: str) -> None:
    made = toy.dataset()
    features = {**made.features, "text": Feature("string")}
    change: Any = "text" if role == "inputs" else ByHash("text", {"train": 0.8, "test": 0.2})
    with pytest.raises(SchemaError, match="no batch can be made") as caught:
        replace(made, features=features, **{role: change})
    assert caught.value.facts["field"] == "text"
