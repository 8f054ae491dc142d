from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from PIL import Image

from datasets.errors import CheckpointMismatch, NonFiniteError
from datasets.schema import Feature
from tasks import evaluate as stage
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json
from tasks.evaluate import (
    CONFUSION,
    LOSS_CURVE,
    METRICS,
    MISTAKES,
    MISTAKES_PAGE,
    MISTAKES_PICTURE,
    PREDICTIONS,
    evaluate_weights,
    places,
    predict_split,
)
from tasks.request import Request
from tasks.weights import build_model, save_weights

ROWS = 60
TRUTH = np.arange(ROWS) % 3
ANSWERS = np.where(np.arange(ROWS) < 9, 0, TRUTH)  # of the first nine, three are class 0


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return toy.table_request(tmp_path_factory.mktemp("store"), ROWS)


@pytest.fixture(scope="module")
def records(request_: Request) -> Artifact:
    return toy.records_of(request_)


@pytest.fixture(scope="module")
def weights(request_: Request) -> Artifact:
    return toy.weights_that_say(request_, ANSWERS, "known")


@pytest.fixture(scope="module")
def evaluation(request_: Request, records: Artifact, weights: Artifact) -> tuple[Path, dict[str, Any]]:
    job = toy.job(request_, "evaluate")
    made = evaluate_weights(job, records, weights)
    return job.store.path(made), {**job.store.facts(made), "digest": made.digest, "notes": job.notes}


def test_the_metrics_are_those_of_the_known_answers(
    evaluation: tuple[Path, dict[str, Any]], records: Artifact, weights: Artifact
) -> None:
    folder, facts = evaluation
    metrics = read_json(folder / METRICS)
    assert (metrics["examples"], metrics["correct"], metrics["accuracy"]) == (ROWS, 54, 0.9)
    assert metrics["confusion"] == [[20, 0, 0], [3, 17, 0], [3, 0, 17]]
    assert [row["recall"] for row in metrics["classes"].values()] == [1.0, 0.85, 0.85]
    right, wrong = np.log(1 + 2 * np.exp(-5.0)), np.log(2 + np.exp(5.0))
    assert metrics["loss"] == pytest.approx((54 * right + 6 * wrong) / 60, rel=1e-5)
    assert {name: facts[name] for name in ("records", "weights", "examples", "correct", "accuracy", "loss")} == {
        "records": records.digest, "weights": weights.digest,
        **{name: metrics[name] for name in ("examples", "correct", "accuracy", "loss")},
    }  # fmt: skip
    assert (facts["notes"]["traces"]["used"], facts["notes"]["traces"]["budget"]) == (1, 1)


def test_predictions_are_kept_example_by_example(evaluation: tuple[Path, dict[str, Any]]) -> None:
    with np.load(evaluation[0] / PREDICTIONS, allow_pickle=False) as file:
        assert set(file) == {"logits", "losses"}
        expected = np.zeros((ROWS, 3), np.float32)
        expected[np.arange(ROWS), ANSWERS] = 5.0
        np.testing.assert_allclose(file["logits"], expected)
        np.testing.assert_allclose(
            file["losses"], np.where(ANSWERS == TRUTH, np.log(1 + 2 * np.exp(-5.0)), np.log(2 + np.exp(5.0))), rtol=1e-5
        )


def test_the_worst_mistakes_are_kept_with_their_raw_rows(evaluation: tuple[Path, dict[str, Any]]) -> None:
    rows = read_json(evaluation[0] / MISTAKES)
    assert sorted((row["file"], row["row"], row["truth"], row["predicted"]) for row in rows) == [
        ("raw", ROWS + i, toy.CLASSES[TRUTH[i]], "circle") for i in np.flatnonzero(ANSWERS != TRUTH)
    ]  # fmt: skip
    assert (evaluation[0] / MISTAKES_PAGE).read_text().count("| raw | ") == 6
    assert not (evaluation[0] / MISTAKES_PICTURE).exists()


def test_facts_hold_every_figure_with_its_interval(evaluation: tuple[Path, dict[str, Any]]) -> None:
    facts = evaluation[1]
    assert facts["top_2_correct"] / ROWS == facts["top_2"]
    low, high = facts["intervals"]["accuracy"]
    assert low < 0.9 < high


def test_slices_are_scored_and_pictures_shown(tmp_path: Path) -> None:
    columns = toy.pictures()
    columns["half"] = (np.arange(toy.ROWS) % 2).astype(np.int32)
    made = toy.dataset(
        read=toy.reader_of(columns), slices=("half",),
        features={**toy.dataset().features, "half": Feature("int32", classes=("even", "odd"))},
    )  # fmt: skip
    request = toy.request_for(tmp_path, made)
    records = toy.records_of(request)
    model = build_model("mlp", made.features["image"], 3, dropout=0.0, seed=0)
    model.eval()

    def fill(draft: Draft) -> None:
        save_weights(draft.folder, model, request.dataset)
        history = [{"step": 0, "loss": 1.0}, {"step": 0, "test_loss": 1.0, "test_accuracy": 0.5}]
        (draft.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in history))

    weights = toy.job(request, "fit").commit("weights", fill)
    job = toy.job(request, "evaluate")
    folder = job.store.path(evaluate_weights(job, records, weights))
    metrics = read_json(folder / METRICS)
    halves = metrics["slices"]["half"]
    assert {name: row["examples"] for name, row in halves.items()} == {"even": 25, "odd": 25}
    assert sum(row["correct"] for row in halves.values()) == metrics["correct"]
    assert Image.open(io.BytesIO((folder / MISTAKES_PICTURE).read_bytes())).format == "PNG"
    assert not (folder / MISTAKES_PAGE).exists()


@pytest.mark.parametrize("name", [LOSS_CURVE, CONFUSION])
def test_plots_are_pictures(evaluation: tuple[Path, dict[str, Any]], name: str) -> None:
    picture = Image.open(io.BytesIO((evaluation[0] / name).read_bytes()))
    assert picture.format == "PNG"
    assert min(picture.size) > 200


def test_the_same_again_is_equal_to_the_last_byte(
    request_: Request, records: Artifact, weights: Artifact, evaluation: tuple[Path, dict[str, Any]]
) -> None:
    assert evaluate_weights(toy.job(request_, "evaluate", "again"), records, weights).digest == evaluation[1]["digest"]


@pytest.mark.parametrize("batch_size", [1, 7, ROWS, ROWS + 1])
def test_every_example_counts_once_for_any_batch_size(
    request_: Request, records: Artifact, weights: Artifact, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    monkeypatch.setattr(stage, "BATCH_SIZE", batch_size)
    predictions, traces = predict_split(Store(request_.store), request_, records, weights, "test")
    np.testing.assert_array_equal(predictions.predicted, ANSWERS)
    np.testing.assert_array_equal(predictions.labels, TRUTH)
    assert traces["used"] == 1


def bad_at(
    request_: Request, records: Artifact, key: str, index: int, values: list[float]
) -> pytest.ExceptionInfo[Any]:
    """What evaluation says of a model whose logits of one example are these."""
    from tasks import weights as module

    load = module.load_model

    def changed(folder: Path) -> Any:
        model, card = load(folder)
        kernel = np.array(model.head.kernel[...])  # type: ignore[attr-defined]
        kernel[index] = values
        model.head.kernel[...] = kernel  # type: ignore[attr-defined]
        return model, card

    weights = toy.weights_that_say(request_, ANSWERS, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_model", changed)
        with pytest.raises(NonFiniteError) as caught:
            evaluate_weights(toy.job(request_, "evaluate", key), records, weights)
    assert not (request_.store / "evaluation" / "toy" / key).exists()
    return caught


def test_infinite_weights_are_refused_and_the_example_is_named(request_: Request, records: Artifact) -> None:
    # inf * 0 is NaN, so every example has one: the first is named
    caught = bad_at(request_, records, "infinite", 13, [np.inf, 0, 0])
    assert {name: caught.value.facts[name] for name in ("split", "record", "count")} == {
        "split": "test", "record": 0, "count": "60 examples",
    }  # fmt: skip


def test_an_infinite_loss_of_finite_logits_is_refused(request_: Request, records: Artifact) -> None:
    caught = bad_at(request_, records, "overflow", 13, [3e38, -3e38, -3e38])  # example 13 is of class 1
    assert (caught.value.facts["record"], caught.value.facts["count"]) == (13, "1 examples")


def test_the_first_bad_example_is_named(request_: Request, records: Artifact) -> None:
    caught = bad_at(request_, records, "later", 31, [3e38, -3e38, -3e38])  # of class 1, too
    assert caught.value.facts["record"] == 31


def test_weights_of_another_model_are_a_mismatch(
    request_: Request, records: Artifact, weights: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.models import mlp

    monkeypatch.setattr(mlp, "HIDDEN", 64)
    with pytest.raises(CheckpointMismatch, match="another model"):
        evaluate_weights(toy.job(request_, "evaluate", "mismatch"), records, weights)


def test_class_names_and_the_model_count_in_the_key(request_: Request) -> None:
    made = request_.dataset
    renamed = {**made.features, "label": Feature("int32", classes=("x", "y", "z"))}
    other = replace(request_, dataset=replace(made, features=renamed))
    assert toy.key_parts(stage.evaluate, other) != toy.key_parts(stage.evaluate, request_)
    assert stage.evaluate.code(request_) == ("tasks.models.mlp:build",)


def test_classes_are_matched_by_name() -> None:
    np.testing.assert_array_equal(places(["a", "b", "c"], ("c", "a", "b")), [2, 0, 1])
    for other in (["a", "b"], ["a", "b", "d"], ["a", "b", "c", "c"]):
        with pytest.raises(CheckpointMismatch, match="other classes"):
            places(other, ("a", "b", "c"))
