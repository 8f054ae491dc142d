from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mixed
import numpy as np
import pytest
import toy

from datasets.errors import CheckpointMismatch, PipelineStateError, SchemaError, StoreError
from datasets.schema import Columns, Feature
from datasets.transforms import ClassIndex, Standardise
from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.evaluate import evaluate_weights
from tasks.feed import as_trained, columns, open_pipeline
from tasks.fitted import TRANSFORMS, Fitted, read_fitted
from tasks.planning import Plan
from tasks.promote import promote_candidate
from tasks.request import Request
from tasks.stage import Run, key_of
from tasks.transform import fit_transforms, learned, train_split, transform, transformed

SMALL = {"epochs": 6, "batch_size": 16, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, dict[str, Artifact], Artifact]:
    request = mixed.request_for(tmp_path_factory.mktemp("store"), **SMALL)
    seen, inputs = mixed.prepare(request)
    weights, _ = toy.fitted(seen, {name: made for name, made in inputs.items() if name != "transforms"})
    return seen, inputs, weights


def changed(split: str) -> Columns:
    """The table with other values in one split."""
    made = {name: column.copy() for name, column in mixed.table().items()}
    rows = slice(0, mixed.TRAIN) if split == "train" else slice(mixed.TRAIN, None)
    made["amount"][rows] = np.where(made["amount"][rows] < 0, -1, made["amount"][rows] * 3)
    made["country"][rows] = mixed.texts(["zz"])
    return made


def key_and_digest(store: Path, made: Columns) -> tuple[str, str]:
    request = mixed.request_for(store, mixed.dataset(made))
    records = toy.records_of(request)
    run = Run(request, sources=toy.SOURCES)
    artifact = mixed.fitted_artifact(request, records)
    inputs = {"train": train_split(run, records), "records": records, "report": artifact}
    return key_of(transform.components(run, inputs)), artifact.digest


def test_the_test_split_changes_neither_key_nor_values(tmp_path: Path) -> None:
    base = key_and_digest(tmp_path / "base", mixed.table())
    assert key_and_digest(tmp_path / "test", changed("test")) == base
    other = key_and_digest(tmp_path / "train", changed("train"))
    assert other[0] != base[0]
    assert other[1] != base[1]


@pytest.mark.parametrize("at_once", [17, 1000, 10**6])
def test_no_cut_into_blocks_changes_a_value(
    trained: tuple[Request, dict[str, Artifact], Artifact], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    request, inputs, _ = trained
    made = mixed.request_for(request.store)
    rows = columns(Store(request.store), made, inputs["records"], "train")
    monkeypatch.setattr("tasks.transform.NUMBERS_AT_ONCE", at_once)
    assert request.fitted is not None
    assert learned(made.dataset, rows).digest == request.fitted.digest


def test_a_dataset_without_transforms_has_no_such_stage(tmp_path: Path) -> None:
    run = mixed.Bodies(toy.request_for(tmp_path, toy.dataset()))
    before = run.request
    made = toy.no_raw(before)
    assert transformed(run, made, made) == {}
    assert (run.outcomes, run.request) == ([], before)


def test_a_plan_that_can_not_know_the_values_waits_for_them(tmp_path: Path) -> None:
    plan = Plan(mixed.request_for(tmp_path))
    unknown = Artifact("records", "toy", "", "")
    made = transformed(plan, unknown, unknown)
    assert made["transforms"].digest == ""
    assert plan.steps[0]["because"] == [{"component": "inputs.train", "old": None, "new": "not made yet"}]
    assert plan.request.fitted is None


def test_records_that_were_not_validated_teach_nothing(tmp_path: Path) -> None:
    request = mixed.request_for(tmp_path)
    records = toy.records_of(request)
    report = toy.job(request, "validate").commit("report", lambda draft: draft.facts.update(records="others"))
    with pytest.raises(StoreError, match="not validated"):
        fit_transforms(toy.job(request, "transform"), records, records, report)


def test_a_feature_that_can_not_be_transformed_is_named(tmp_path: Path) -> None:
    made = mixed.dataset(transforms={**mixed.TRANSFORMS, "amount": (Standardise(), mixed.TRANSFORMS["country"][0])})
    request = mixed.request_for(tmp_path, made)
    with pytest.raises(SchemaError, match="can't be looked up") as caught:
        mixed.fitted_artifact(request, toy.records_of(request))
    assert caught.value.facts["field"] == "amount"


def test_training_sees_transformed_rows_and_its_state_is_bound_to_them(
    trained: tuple[Request, dict[str, Artifact], Artifact],
) -> None:
    request, inputs, _ = trained
    store = Store(request.store)
    pipeline = open_pipeline(store, request, inputs["records"])
    batch = pipeline.batch(3)
    assert {name: (column.dtype.name, column.shape) for name, column in batch.items()} == {
        "inputs": ("float32", (16, 13)), "label": ("int32", (16,)),
    }  # fmt: skip
    raw = columns(store, mixed.request_for(request.store), inputs["records"], "train")
    assert request.fitted is not None
    ids = pipeline.order.ids(3)[1]
    assert batch["inputs"].tobytes() == request.fitted.apply(raw.read(ids))["inputs"].tobytes()
    moved = request.fitted.to_json()
    moved["steps"][1]["values"]["mean"] = [1.0]
    other = replace(request, fitted=Fitted.from_json(moved))
    with pytest.raises(PipelineStateError, match="digest"):
        open_pipeline(store, other, inputs["records"]).restore(pipeline.state(3))


def test_workers_make_the_same_batches(trained: tuple[Request, dict[str, Artifact], Artifact]) -> None:
    request, inputs, _ = trained
    pipeline = open_pipeline(Store(request.store), request, inputs["records"])
    with pipeline.iterate(0, 4, workers=1) as batches:
        for step, batch in enumerate(batches):
            assert batch["inputs"].tobytes() == pipeline.batch(step)["inputs"].tobytes()


def evaluated(request: Request, inputs: dict[str, Artifact], weights: Artifact, key: str) -> Artifact:
    return evaluate_weights(toy.job(request, "evaluate", key), inputs["records"], weights)


def test_evaluation_uses_the_values_beside_the_weights(
    trained: tuple[Request, dict[str, Artifact], Artifact],
) -> None:
    request, inputs, weights = trained
    store = Store(request.store)
    assert request.fitted is not None
    own = read_fitted(store.path(weights))
    assert own is not None
    assert own.digest == request.fitted.digest
    facts = store.facts(evaluated(request, inputs, weights, "own"))
    assert facts["accuracy"] > 0.8  # a model that saw raw amounts would not get there in six epochs
    moved = request.fitted.to_json()
    moved["steps"][1]["values"]["mean"] = [1e6]
    today = replace(request, fitted=Fitted.from_json(moved))
    assert store.facts(evaluated(today, inputs, weights, "moved"))["accuracy"] == facts["accuracy"]


def test_a_champion_of_a_smaller_vocabulary_is_held_against_the_candidate(tmp_path: Path) -> None:
    def night(made: Columns, key: str) -> dict[str, Any]:
        request = mixed.request_for(tmp_path, mixed.dataset(made))
        seen, inputs = mixed.prepare(request)
        weights = mixed.untrained(seen, key)
        evaluation = evaluated(seen, inputs, weights, key)
        decision = promote_candidate(toy.job(seen, "promote", key), inputs["records"], weights, evaluation)
        return {**Store(tmp_path).facts(decision), "width": seen.dataset.features["inputs"].shape}

    assert night(mixed.table(), "first")["promoted"]
    grown = mixed.table()
    grown["country"][:30] = mixed.texts(["fr"])
    second = night(grown, "second")
    assert second["width"] == (14,)
    assert "test" in second  # it was compared, on the same rows


def test_transforms_of_a_feature_that_is_gone_are_a_mismatch(
    trained: tuple[Request, dict[str, Artifact], Artifact],
) -> None:
    request, _, weights = trained
    assert request.fitted is not None
    takes = {**request.fitted.takes, "three": Feature("float32", (4,))}
    other = replace(request, fitted=Fitted(takes, request.fitted.steps))
    with pytest.raises(CheckpointMismatch, match="another feature") as caught:
        as_trained(other, Store(request.store).path(weights))
    assert caught.value.facts["field"] == "three"


def test_weights_without_transforms_see_records_as_they_are(
    trained: tuple[Request, dict[str, Artifact], Artifact], tmp_path: Path
) -> None:
    request, inputs, _ = trained
    plain = as_trained(request, tmp_path)
    assert columns(Store(request.store), plain, inputs["records"], "test").features.keys() == mixed.FEATURES.keys()
    before = toy.request_for(tmp_path, toy.dataset())
    assert as_trained(before, tmp_path) is before


def test_classes_come_from_the_train_split(tmp_path: Path) -> None:
    columns_ = mixed.table()
    columns_["label"] = columns_["label"] * 5 + 2
    made = mixed.dataset(
        columns_, features={**mixed.FEATURES, "label": Feature("int32")},
        transforms={**mixed.TRANSFORMS, "label": ClassIndex()},
    )  # fmt: skip
    seen, inputs = mixed.prepare(mixed.request_for(tmp_path, made))
    assert seen.dataset.features["label"].classes == ("2", "7")
    weights = mixed.untrained(seen, "fit-1")
    metrics = read_json(Store(tmp_path).path(evaluated(seen, inputs, weights, "e")) / "metrics.json")
    assert list(metrics["classes"]) == ["2", "7"]
    assert metrics["examples"] == mixed.ROWS - mixed.TRAIN


def test_its_file_is_in_the_weights_of_a_training_alone(
    trained: tuple[Request, dict[str, Artifact], Artifact],
) -> None:
    request, inputs, weights = trained
    store = Store(request.store)
    assert (store.path(weights) / TRANSFORMS).read_bytes() == (
        store.path(inputs["transforms"]) / TRANSFORMS
    ).read_bytes()
    assert np.isfinite(read_json(store.path(weights) / TRANSFORMS)["steps"][1]["values"]["mean"]).all()


def test_a_plan_of_the_whole_flow_shows_the_stage(tmp_path: Path) -> None:
    from flows.train import stages

    plan = Plan(mixed.request_for(tmp_path))
    stages(plan)
    assert [step["name"] for step in plan.steps] == [
        "fetch", "convert", "validate", "transform", "feed", "fit", "evaluate", "promote",
    ]  # fmt: skip
    without = Plan(toy.request_for(tmp_path, toy.dataset()))
    stages(without)
    assert "transform" not in [step["name"] for step in without.steps]
