from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy

from datasets.errors import SchemaError
from datasets.ragged import Ragged
from datasets.schema import ByHash, Feature, in_batches
from tasks.artifact import Store
from tasks.durable import read_json
from tasks.evaluate import evaluate_weights
from tasks.validate import REPORT


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


def test_a_dataset_with_texts_beside_the_inputs_trains_on_the_rest(tmp_path: Path) -> None:
    columns: dict[str, Any] = toy.pictures()
    columns["text"] = Ragged.of_items(["x" * (i % 6) for i in range(toy.ROWS)], of="string")
    plain = toy.dataset(read=toy.reader_of(toy.pictures()))
    made = replace(plain, read=toy.reader_of(columns), features={**plain.features, "text": Feature("string")})
    losses: list[float] = []
    for place, dataset in (("plain", plain), ("texts", made)):
        request = toy.request_for(tmp_path / place, dataset, epochs=1)
        inputs = toy.prepare(request)
        weights, _ = toy.fitted(request, inputs)
        evaluation = evaluate_weights(toy.job(request, "evaluate"), records=inputs["records"], weights=weights)
        losses.append(Store(request.store).facts(evaluation)["loss"])
    assert losses[0] == losses[1]
    report = read_json(Store(request.store).path(inputs["report"]) / REPORT)
    assert report["splits"]["train"]["features"]["text"]["max"] == 5
