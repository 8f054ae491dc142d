"""What recipes do to a whole training, and that each comes back to the last bit when it was stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import toy
from safetensors.numpy import load_file

from datasets.errors import NonFiniteError
from datasets.schema import Columns, Feature, Rows
from tasks import input_wait
from tasks.artifact import Artifact, Store
from tasks.columns import MappedColumns
from tasks.metric_log import read_metrics
from tasks.order import Order
from tasks.request import Request
from tasks.stage import Job
from tasks.step import TrainStep
from tasks.training import METRICS, Training, overlaid
from tasks.weights import WEIGHTS, load_model

EPOCH, STEPS = toy.TRAIN // 16, 2 * (toy.TRAIN // 16)
HUGE = 17
"""Id of the train record whose value overflows in the first matrix product."""


class Stopped(Exception):  # noqa: N818
    pass


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    return toy.request_for(tmp_path_factory.mktemp("store"), made, checkpoint_every=4)


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


def with_recipe(request: Request, **recipe: Any) -> Request:
    return replace(request, dataset=replace(request.dataset, recipe=replace(request.dataset.recipe, **recipe)))


@contextmanager
def stopped_before(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    original = TrainStep.__call__

    def stopping(self: TrainStep, carry: Any, batch: Any) -> Any:
        if int(carry.step) == step:
            raise Stopped
        return original(self, carry, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "__call__", stopping)
        with pytest.raises(Stopped):
            yield


def folder(request: Request, artifact: Artifact) -> Path:
    return Store(request.store).path(artifact)


def rows(request: Request, artifact: Artifact) -> list[dict[str, Any]]:
    return read_metrics(folder(request, artifact) / METRICS)


def same(request: Request, *artifacts: Artifact) -> bool:
    weights, metrics = (
        {(folder(request, artifact) / name).read_bytes() for artifact in artifacts} for name in (WEIGHTS, METRICS)
    )
    return len(weights) == len(metrics) == 1


RECIPES: dict[str, dict[str, Any]] = {
    "ema": {"ema": 0.9},
    "accumulate": {"accumulate": 3},
    "both": {"accumulate": 3, "ema": 0.8, "precision": "bfloat16", "class_weights": "balanced"},
    "muon": {"optimizer": "muon", "evaluate_every": 5},
    "early": {"early_stopping": 2, "evaluate_every": 2, "learning_rate": 3.0, "schedule": "cosine"},
}


@pytest.mark.parametrize(
    "name", [name if name in ("both", "early") else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_stopped_and_resumed_is_equal_to_the_last_bit(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    request = with_recipe(request_, **RECIPES[name])
    whole, _ = toy.fitted(request, inputs, f"{name}-whole")
    for stop in (5, 10) if name != "early" else (5,):
        with stopped_before(monkeypatch, stop):
            toy.fitted(request, inputs, f"{name}-cut")
    resumed, job = toy.fitted(request, inputs, f"{name}-cut")
    assert job.notes["resumed_from"] >= 4
    assert same(request, whole, resumed)
    assert whole.digest == resumed.digest


# ----------------------------------------------------------------------------------------------------------- the effect


def test_the_average_is_what_is_evaluated_and_kept(request_: Request, inputs: Any) -> None:
    plain, averaged = (toy.fitted(with_recipe(request_, ema=ema), inputs, f"ema-{ema}")[0] for ema in (None, 0.9))
    steps = [[row for row in rows(request_, a) if "loss" in row] for a in (plain, averaged)]
    assert steps[0] == steps[1]  # the average only watches
    tests = [[row for row in rows(request_, a) if "test_loss" in row] for a in (plain, averaged)]
    assert tests[0] != tests[1]
    arrays = [load_file(folder(request_, a) / WEIGHTS) for a in (plain, averaged)]
    assert all(not np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
    model, _ = load_model(folder(request_, averaged))
    columns = toy.pictures()
    logits = np.asarray(model(columns["image"][toy.TRAIN :]))  # type: ignore[operator]
    accuracy = (logits.argmax(1) == columns["label"][toy.TRAIN :]).mean()
    assert accuracy == pytest.approx(tests[1][-1]["test_accuracy"])


def test_accumulation_equals_the_larger_batch(request_: Request, inputs: Any) -> None:
    """Without BatchNorm, two batches of 8 in one update are one batch of 16, but for rounding."""
    options: dict[str, Any] = {"dropout": 0.0, "epochs": 1, "learning_rate": 0.1, "optimizer": "sgd"}
    large = with_recipe(request_, **options)
    small = with_recipe(request_, **options, batch_size=8, accumulate=2)
    arrays = [
        load_file(folder(request_, toy.fitted(request, inputs, key)[0]) / WEIGHTS)
        for request, key in ((large, "large"), (small, "small"))
    ]
    for name in arrays[0]:
        np.testing.assert_allclose(arrays[0][name], arrays[1][name], rtol=1e-4, atol=1e-5)


def test_the_rate_moves_once_an_update(request_: Request, inputs: Any) -> None:
    artifact, _ = toy.fitted(with_recipe(request_, accumulate=4, warmup=0.0), inputs, "rates")
    rates = [row["learning_rate"] for row in rows(request_, artifact) if "loss" in row]
    assert len(set(rates)) == STEPS // 4
    assert all(len({*rates[i : i + 4]}) == 1 for i in range(0, 16, 4))


def test_evaluation_every_n_steps_changes_no_step(request_: Request, inputs: Any) -> None:
    seldom, often = (
        toy.fitted(with_recipe(request_, evaluate_every=every), inputs, f"every-{every}")[0] for every in (None, 4)
    )
    at = [row["step"] + 1 for row in rows(request_, often) if "test_loss" in row]
    assert at == [4, 8, EPOCH, 12, 16, STEPS]
    steps = [[row for row in rows(request_, a) if "loss" in row] for a in (seldom, often)]
    assert steps[0] == steps[1]
    assert len({(folder(request_, a) / WEIGHTS).read_bytes() for a in (seldom, often)}) == 1


def test_early_stopping_ends_after_so_many_evaluations_without_a_lower_loss(request_: Request, inputs: Any) -> None:
    request = with_recipe(request_, **RECIPES["early"])
    artifact, job = toy.fitted(request, inputs, "early-end")
    losses = [row["test_loss"] for row in rows(request, artifact) if "test_loss" in row]
    steps = [row["step"] for row in rows(request, artifact) if "loss" in row]
    assert len(steps) == Store(request.store).facts(artifact)["steps"] == job.notes["steps"] < STEPS
    lowest = int(np.argmin(losses))
    assert len(losses) - 1 - lowest == 2
    assert min(losses[:-1]) == losses[lowest]
    again, job = toy.fitted(request, inputs, "early-end")  # nothing is trained again
    assert (job.notes["resumed_from"], job.notes["steps"]) == (len(steps), 0)
    assert again.digest == artifact.digest


def test_leaves_of_the_top_replace_those_below() -> None:
    assert overlaid({"a": {"w": 1, "mean": 2}, "rng": 3}, {"a": {"w": 9}}) == {"a": {"w": 9, "mean": 2}, "rng": 3}


# ------------------------------------------------------------------------------------------------------- a bad batch


def numbers(store: Path, **recipe: Any) -> tuple[Request, dict[str, Artifact], list[int]]:
    """Rows of three numbers, one of which overflows in the model; the steps that meet it."""
    random = np.random.default_rng(0)
    columns = {"x": random.normal(size=(200, 3)).astype(np.float32), "label": (np.arange(200) % 3).astype(np.int32)}
    columns["x"][HUGE, 1] = 3e38
    features = {"x": Feature("float32", (3,)), "label": Feature("int32", classes=toy.CLASSES)}
    splits = {"train": Rows(0, toy.TRAIN), "test": Rows(toy.TRAIN, toy.ROWS)}
    made = toy.dataset(read=toy.reader_of(columns), features=features, inputs="x", splits=splits)
    request = with_recipe(toy.request_for(store, made, checkpoint_every=4), warmup=0.0, **recipe)
    order = Order(toy.TRAIN, 16, seed=3)
    return request, toy.prepare(request), [step for step in range(STEPS) if HUGE in order.ids(step)[1]]


def test_a_skipped_batch_is_counted_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, inputs, bad = numbers(tmp_path, on_nonfinite="skip")
    assert len(bad) == 2
    artifact, job = toy.fitted(request, inputs, "skip")
    history = rows(request, artifact)
    skipped = [row for row in history if "skipped" in row]
    assert [row["step"] for row in skipped] == bad
    for row in skipped:
        assert set(row) == {"step", "epoch", "skipped", "records"}
        assert row["records"] == Order(toy.TRAIN, 16, seed=3).ids(row["step"])[1].tolist()
        assert HUGE in row["records"]
        assert row["skipped"] == "loss"
    assert job.notes["skipped_batches"] == len(bad)
    steps = [row for row in history if "loss" in row]
    assert [row["step"] for row in steps] == [step for step in range(STEPS) if step not in bad]
    assert all(math.isfinite(row[name]) for row in steps for name in ("loss", "accuracy", "grad_norm"))
    rates = [row["learning_rate"] for row in steps]
    assert len(set(rates)) == len(rates)  # the schedule stood still where nothing was applied
    assert all(np.isfinite(array).all() for array in load_file(folder(request, artifact) / WEIGHTS).values())
    with stopped_before(monkeypatch, bad[1] + 1):
        toy.fitted(request, inputs, "skip-cut")
    resumed, job = toy.fitted(request, inputs, "skip-cut")
    assert same(request, artifact, resumed)
    assert job.notes["skipped_batches"] == len(bad)


def test_one_skip_too_many_stops(tmp_path: Path) -> None:
    request, inputs, bad = numbers(tmp_path, on_nonfinite="skip", max_skips=1)
    with pytest.raises(NonFiniteError, match="no more batches may be skipped") as caught:
        toy.fitted(request, inputs, "limit")
    assert caught.value.facts["step"] == bad[1]


def test_a_poisoned_state_is_never_saved(request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finite gradient that an optimizer turns into NaN: the firewall can't see it."""
    import optax

    import tasks.objective as module

    def dividing(*_: Any) -> optax.GradientTransformation:
        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            import jax

            return jax.tree.map(lambda g: g / (state["n"] - 7.0), updates), {"n": state["n"] + 1}

        return optax.GradientTransformation(lambda params: {"n": np.zeros((), np.float32)}, update)

    with monkeypatch.context() as patch:
        patch.setattr(module, "build_optimizer", dividing)
        patch.setattr(Training, "_evaluate", lambda self, carry, at: {})
        with pytest.raises(NonFiniteError, match="isn't finite; it is not saved") as caught:
            toy.fitted(request_, inputs, "poisoned")
    assert "model/" in str(caught.value.facts["leaves"])
    saved = [int(p.name) for p in (request_.store / "checkpoints" / "toy" / "poisoned").iterdir() if p.name.isdigit()]
    assert saved == [4]


def test_notes_count_what_this_process_did_and_waited_for(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    read = MappedColumns.read

    def late(self: MappedColumns, ids: np.ndarray) -> Columns:
        time.sleep(0.4 * (len(ids) > 16))  # the train split's batches are read at once, the test split's one by one
        return read(self, ids)

    monkeypatch.setattr(MappedColumns, "read", late)
    monkeypatch.setattr(input_wait, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(input_wait, "MOST", 0.001)
    _, job = toy.fitted(with_recipe(request_, epochs=1), inputs, "notes")
    assert isinstance(job, Job)
    assert (job.notes["steps"], job.notes["resumed_from"]) == (EPOCH, None)
    assert job.notes["input_wait"] > 0.001
    assert job.notes["input_waits"]["greatest_ms"] >= 400
    assert job.notes["input_waits"]["greatest_at_step"] == 0
    assert "of the training was spent waiting for input" in said.text


# ------------------------------------------------------------------------------------------------------ for other tools


def test_logs_and_the_table_of_the_model_are_kept(request_: Request, inputs: Any) -> None:
    artifact, job = toy.fitted(with_recipe(request_, epochs=1), inputs, "logs")
    logs = request_.store / "logs" / "toy" / job.key
    table = pq.read_table(logs / "metrics.parquet").to_pylist()
    assert [{k: v for k, v in row.items() if v is not None} for row in table] == rows(request_, artifact)
    times = pq.read_table(logs / "times.parquet").to_pylist()
    assert times[-1]["step"] == EPOCH - 1
    assert all(row["step_ms"] > 0 and row["examples_per_second"] > 0 and row["input_wait"] >= 0 for row in times)
    assert times[-1]["seconds"] == pytest.approx(
        sum(row["step_ms"] * (row["step"] - before) / 1000 for row, before in
            zip(times, [-1, *(row["step"] for row in times)], strict=False))
    )  # fmt: skip
    assert (logs / "events.out.tfevents.gristmill").stat().st_size > 100
    text = (folder(request_, artifact) / "model.txt").read_text()
    assert "hidden" in text
    assert "9,731" in text  # parameters
    assert "flops" in text


def test_a_training_that_fails_leaves_its_logs(tmp_path: Path) -> None:
    request, inputs, bad = numbers(tmp_path, on_nonfinite="skip", max_skips=1)
    with pytest.raises(NonFiniteError):
        toy.fitted(request, inputs, "failed")
    steps = pq.read_table(tmp_path / "logs" / "toy" / "failed" / "metrics.parquet").column("step").to_pylist()
    assert bad[0] < len(steps) <= bad[1] + 1  # the evaluation after an epoch is a row too


# One step of it is in test_debug_checks.py, that a training takes it below
@pytest.mark.slow
def test_debug_mode_trains_to_the_same_weights_but_for_rounding(
    request_: Request, inputs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    request = with_recipe(request_, epochs=1)
    with caplog.at_level("WARNING", "gristmill"):
        checked, _ = toy.fitted(replace(request, debug_checks=True), inputs, "debug")
    assert "debug mode" in caplog.text
    plain, _ = toy.fitted(request, inputs, "no-debug")
    arrays = [load_file(folder(request_, artifact) / WEIGHTS) for artifact in (checked, plain)]
    for name in arrays[0]:
        np.testing.assert_allclose(arrays[0][name], arrays[1][name], rtol=1e-3, atol=1e-4)


def test_debug_mode_names_the_layer_that_overflows(tmp_path: Path) -> None:
    request, inputs, _ = numbers(tmp_path)
    with pytest.raises(NonFiniteError, match="debug mode") as caught:
        toy.fitted(replace(request, debug_checks=True), inputs, "debug")
    assert "layer hidden gives" in str(caught.value.facts["check"])
