from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import toy
from orbax.checkpoint import v1 as ocp

from datasets.augment import Shift
from datasets.errors import GristmillError, NonFiniteError, SchemaError, TrainingError
from datasets.schema import Feature, Rows
from tasks import training
from tasks.artifact import Artifact, Store
from tasks.autotune import Setting
from tasks.columns import MappedColumns
from tasks.metric_log import read_metrics
from tasks.optimizers import learning_rate_at
from tasks.order import Order
from tasks.request import Request
from tasks.step import TrainStep
from tasks.training import METRICS, Training
from tasks.weights import WEIGHTS

EPOCH, STEPS = toy.TRAIN // 16, 2 * (toy.TRAIN // 16)
Trained = tuple[Artifact, dict[str, Any]]


class Stopped(Exception):  # noqa: N818
    pass


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    """Dropout, BatchNorm, Adam with a schedule, shuffled and augmented data: all that must come back."""
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    return toy.request_for(tmp_path_factory.mktemp("store"), made, model="cnn", dropout=0.5, augment=(Shift(1),))


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


@pytest.fixture(scope="module")
def reference(request_: Request, inputs: Any) -> Trained:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "SAVE_SECONDS", float("inf"))  # a machine may stand still for half a minute
        artifact, job = toy.fitted(request_, inputs, "reference")
    return artifact, job.notes


@contextmanager
def patched(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, value: Any) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(target, name, value)
        yield


@contextmanager
def stopped_before(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    original = TrainStep.__call__

    def stopping(self: TrainStep, carry: Any, batch: Any) -> Any:
        if int(carry.step) == step:
            raise Stopped
        return original(self, carry, batch)

    with patched(monkeypatch, TrainStep, "__call__", stopping), pytest.raises(Stopped):
        yield


def checkpoints(request: Request, key: str) -> list[int]:
    folder = request.store / "checkpoints" / "toy" / key
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def history(request: Request, artifact: Artifact) -> list[dict[str, Any]]:
    return read_metrics(Store(request.store).path(artifact) / METRICS)


# --------------------------------------------------------------------------------------------------- an undisturbed run


def test_a_training_keeps_every_step_and_an_evaluation_each_epoch(request_: Request, reference: Trained) -> None:
    artifact, notes = reference
    rows = history(request_, artifact)
    steps, tests = [row for row in rows if "loss" in row], [row for row in rows if "test_loss" in row]
    assert [row["step"] for row in steps] == list(range(STEPS))
    assert [row["epoch"] for row in steps] == [step // EPOCH for step in range(STEPS)]
    assert [(row["step"], row["epoch"], row["examples"]) for row in tests] == [(EPOCH - 1, 0, 50), (STEPS - 1, 1, 50)]
    rates = jax.jit(jax.vmap(learning_rate_at(request_.dataset.recipe, STEPS)))(np.arange(STEPS))
    np.testing.assert_allclose([row["learning_rate"] for row in steps], rates, rtol=1e-6)
    facts = Store(request_.store).facts(artifact)
    assert {name: facts[name] for name in ("steps", "parameters")} == {
        "steps": STEPS, "parameters": facts["parameters"],
    }  # fmt: skip
    assert notes["resumed_from"] is None
    assert notes["skipped_batches"] == 0
    assert checkpoints(request_, "reference") == [EPOCH, STEPS]  # the best so far, and the last


def test_it_learns(request_: Request, inputs: Any) -> None:
    plain = replace(request_, dataset=toy.dataset(recipe=replace(
        request_.dataset.recipe, model="mlp", epochs=8, dropout=0.0, augment=(), learning_rate=0.01)))  # fmt: skip
    artifact, _ = toy.fitted(plain, inputs, "learns")
    last = history(plain, artifact)[-1]
    assert last["test_accuracy"] > 0.9


def test_a_second_training_in_one_process_is_equal_and_within_its_budget(
    request_: Request, inputs: Any, reference: Trained
) -> None:
    artifact, job = toy.fitted(request_, inputs, "again")
    assert artifact.digest == reference[0].digest
    for notes in (reference[1], job.notes):
        assert {name: (t["used"], t["budget"]) for name, t in notes["traces"].items()} == {
            "train": (1, 1), "eval": (1, 1),
        }  # fmt: skip


def test_the_seed_decides(request_: Request, inputs: Any, reference: Trained) -> None:
    other = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, seed=4)))
    artifact, _ = toy.fitted(other, inputs, "seed")
    assert history(request_, artifact)[0]["loss"] != history(request_, reference[0])[0]["loss"]


# ------------------------------------------------------------------------------------------------------ stop and resume


@pytest.mark.parametrize(
    ("every", "stop", "resumed"), [(4, 7, 4), (EPOCH, EPOCH, EPOCH), (5, STEPS - 1, 15), (50, 3, None)]
)
def test_stopped_and_resumed_is_equal_to_the_last_bit(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch, every: int, stop: int,
    resumed: int | None,
) -> None:  # fmt: skip
    request, key = replace(request_, checkpoint_every=every), f"stopped-{stop}"
    with stopped_before(monkeypatch, stop):
        toy.fitted(request, inputs, key)
    assert not (request.store / "weights" / "toy" / key).exists()
    artifact, job = toy.fitted(request, inputs, key)
    assert job.notes["resumed_from"] == resumed
    assert job.notes["steps"] == STEPS - (resumed or 0)
    folders = [Store(request.store).path(a) for a in (artifact, reference[0])]
    assert (folders[0] / METRICS).read_bytes() == (folders[1] / METRICS).read_bytes()
    assert (folders[0] / WEIGHTS).read_bytes() == (folders[1] / WEIGHTS).read_bytes()
    assert artifact.digest == reference[0].digest


def test_stopped_again_and_again_with_other_intervals(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    for every, stop in ((2, 5), (3, 13)):
        with stopped_before(monkeypatch, stop):
            toy.fitted(replace(request_, checkpoint_every=every), inputs, "often")
    artifact, job = toy.fitted(request_, inputs, "often")
    assert job.notes["resumed_from"] == 12
    assert artifact.digest == reference[0].digest


def test_killed_before_the_weights_were_written_it_trains_no_step_again(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise Stopped

    with patched(monkeypatch, training, "save_weights", broken), pytest.raises(Stopped):
        toy.fitted(request_, inputs, "unsaved")
    with patched(monkeypatch, TrainStep, "__call__", broken):
        artifact, job = toy.fitted(request_, inputs, "unsaved")
    assert (job.notes["resumed_from"], job.notes["steps"]) == (STEPS, 0)
    assert artifact.digest == reference[0].digest


SIGNALLED = """
import json, sys, time
from dataclasses import replace
from pathlib import Path
import toy
from datasets.augment import Shift
from tasks import snapshot
from tasks.artifact import Artifact
from tasks.step import TrainStep

store, inputs = Path(sys.argv[1]), {n: Artifact(**v) for n, v in json.loads(sys.argv[2]).items()}
step, write = TrainStep.__call__, snapshot.write

def slow_step(self, carry, batch):
    if int(carry.step) == 3:
        (store / "signal-me").touch()
    time.sleep(0.1 if int(carry.step) >= 3 else 0)
    return step(self, carry, batch)

def slow_write(*args):
    time.sleep(1)
    return write(*args)

TrainStep.__call__, snapshot.write = slow_step, slow_write
made = toy.dataset(read=toy.reader_of(toy.pictures()))
request = toy.request_for(store, made, model="cnn", dropout=0.5, augment=(Shift(1),))
toy.fitted(replace(request, checkpoint_every=1000), inputs, "signalled")
"""


def test_a_signal_ends_the_process_after_its_step_is_saved(request_: Request, inputs: Any, reference: Trained) -> None:
    handles = json.dumps({name: artifact.to_json() for name, artifact in inputs.items()})
    code = f"import sys\nsys.argv[1:] = {[str(request_.store), handles]!r}\n{SIGNALLED}"
    process = toy.python(code)
    try:
        wait_for((request_.store / "signal-me").exists, process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGTERM
    (saved,) = checkpoints(request_, "signalled")
    assert 3 < saved < STEPS
    artifact, job = toy.fitted(request_, inputs, "signalled")
    assert job.notes["resumed_from"] == saved
    assert artifact.digest == reference[0].digest


def wait_for(condition: Callable[[], object], process: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


class SignalAt:
    """A StopSignal whose signal comes just before the given time that somebody looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def received(self) -> int | None:
        self.looks -= 1
        return signal.SIGTERM if self.looks < 0 else None

    def __enter__(self) -> SignalAt:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("looks", [12, 13, 14])
def test_a_signal_may_come_at_any_moment_of_a_step(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    with (
        patched(monkeypatch, training, "StopSignal", lambda: SignalAt(looks)),
        pytest.raises(TrainingError, match="was stopped"),
    ):
        toy.fitted(request_, inputs, f"moment-{looks}")
    artifact, job = toy.fitted(request_, inputs, f"moment-{looks}")
    assert 0 < job.notes["resumed_from"] < STEPS
    assert artifact.digest == reference[0].digest


# ----------------------------------------------------------------------------------------------------------- evaluation


def test_evaluation_in_the_middle_leaves_the_training_as_it_was(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "_evaluate", lambda self, carry, at: {"step": at, "epoch": 0, "skipped": 1})
    artifact, job = toy.fitted(request_, inputs, "no-evaluation")
    with_it, without = (
        [row for row in history(request_, a) if "loss" in row] for a in (reference[0], artifact)
    )  # fmt: skip
    assert len(with_it) == STEPS
    assert with_it == without
    weights = [(Store(request_.store).path(a) / WEIGHTS).read_bytes() for a in (artifact, reference[0])]
    assert weights[0] == weights[1]
    assert job.notes["traces"]["train"]["used"] == 1


def test_two_evaluations_are_equal_to_the_last_bit(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Training._evaluate

    def twice(self: Training, carry: Any, at: int) -> dict[str, Any]:
        first, second = evaluate(self, carry, at), evaluate(self, carry, at)
        assert first == second
        assert set(first) == {"step", "epoch", "examples", "test_loss", "test_accuracy"}
        return second

    monkeypatch.setattr(Training, "_evaluate", twice)
    assert toy.fitted(request_, inputs, "twice")[0].digest == reference[0].digest


# ----------------------------------------------------------------------------------------------------------- not finite


def numbers(store: Path, epochs: int = 2, **bad: tuple[int, float]) -> tuple[Request, dict[str, Artifact]]:
    """150 train and 50 test rows of three numbers; `bad` puts a value into a row of a split."""
    random = np.random.default_rng(0)
    columns = {"x": random.normal(size=(200, 3)).astype(np.float32), "label": (np.arange(200) % 3).astype(np.int32)}
    for split, (row, value) in bad.items():
        columns["x"][row + (toy.TRAIN if split == "test" else 0), 1] = value
    features = {"x": Feature("float32", (3,)), "label": Feature("int32", classes=toy.CLASSES)}
    splits = {"train": Rows(0, toy.TRAIN), "test": Rows(toy.TRAIN, toy.ROWS)}
    made = toy.dataset(read=toy.reader_of(columns), features=features, inputs="x", splits=splits)
    request = toy.request_for(store, made, checkpoint_every=1, epochs=epochs)
    return request, toy.prepare(request)


def all_finite(request: Request, step: int) -> bool:
    tree: Any = ocp.load(str(request.store / "checkpoints" / "toy" / "fit-1" / str(step)), checkpointable_name="state")
    arrays = [np.asarray(x) for x in flat(tree)]
    assert any(x.dtype.kind == "f" for x in arrays)
    return all(np.isfinite(x).all() for x in arrays if x.dtype.kind == "f")


def flat(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from flat(value)
    else:
        yield tree


@pytest.mark.parametrize(("step", "epochs"), [(4, 2), (EPOCH - 1, 1)], ids=["early", "very last step"])
def test_a_record_that_overflows_ends_the_training_before_it_does_harm(tmp_path: Path, step: int, epochs: int) -> None:
    record = int(Order(toy.TRAIN, 16, seed=3).ids(step)[1][5])
    request, inputs = numbers(tmp_path, epochs, train=(record, 3e38))
    with pytest.raises(NonFiniteError) as caught:
        toy.fitted(request, inputs)
    assert caught.value.facts["step"] == step
    assert Path(str(caught.value.facts["capsule"])).exists()
    assert checkpoints(request, "fit-1")[-1] == step
    assert all_finite(request, step)
    assert not (request.store / "weights" / "toy" / "fit-1").exists()
    rows = read_metrics(request.store / "checkpoints" / "toy" / "fit-1" / METRICS)
    assert [row["step"] for row in rows] == list(range(step))
    assert all(math.isfinite(row["loss"]) for row in rows)
    with pytest.raises(NonFiniteError):  # the same data fails the same way, and the checkpoints stay as they are
        toy.fitted(request, inputs)
    assert checkpoints(request, "fit-1")[-1] == step


def test_nan_in_a_batch_is_a_fault_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, inputs = numbers(tmp_path)
    step, record, read = 4, int(Order(toy.TRAIN, 16, seed=3).ids(4)[1][5]), MappedColumns.read

    def with_nan(self: MappedColumns, ids: np.ndarray) -> Any:
        columns = read(self, ids)
        if len(self) == toy.TRAIN:
            columns["x"][ids == record] = np.nan
        return columns

    monkeypatch.setattr(MappedColumns, "read", with_nan)
    with pytest.raises(SchemaError) as caught:
        toy.fitted(request, inputs)
    assert {name: caught.value.facts[name] for name in ("step", "field", "record")} == {
        "step": step, "field": "x", "record": record,
    }  # fmt: skip
    assert checkpoints(request, "fit-1")[-1] == step
    assert all_finite(request, step)


def test_a_test_example_that_overflows_is_a_typed_error(tmp_path: Path) -> None:
    request, inputs = numbers(tmp_path, test=(9, 3e38))
    with pytest.raises(NonFiniteError, match="test") as caught:
        toy.fitted(request, inputs)
    assert caught.value.facts["step"] == EPOCH - 1
    assert not (request.store / "weights" / "toy" / "fit-1").exists()


# -------------------------------------------------------------------------------------------------- damaged and changed


def test_damaged_records_are_not_trained_on(tmp_path: Path) -> None:
    request, inputs = numbers(tmp_path)
    (shard,) = Store(tmp_path).path(inputs["records"]).glob("train*")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(GristmillError, match="cut or grew"):
        toy.fitted(request, inputs)


def test_the_setting_of_the_plan_is_used_and_changes_nothing(
    request_: Request, inputs: Any, reference: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    original = training.Pipeline.iterate

    def iterate(self: Any, start: int, stop: int, **setting: int) -> Any:
        used.append(setting)
        return original(self, start, stop, **setting)

    monkeypatch.setattr(training.Pipeline, "iterate", iterate)
    setting = Setting(threads=2, prefetch=3)
    monkeypatch.setattr(training, "chosen_setting", lambda store, plan: setting)
    assert toy.fitted(request_, inputs, "setting")[0].digest == reference[0].digest
    assert used == [setting.reading]
