"""What the host logs of the steps, and when; the whole loop is tested in test_training.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_cases import bad_batch, batch, loss_fn, make_step

from datasets.errors import NonFiniteError, TrainingError
from datasets.schema import Recipe
from tasks import watch
from tasks.carry import Policy
from tasks.firewall import Firewall
from tasks.input_wait import InputWait
from tasks.metric_log import MetricLog, read_metrics
from tasks.order import Order
from tasks.step import TrainStep
from tasks.watch import Watch, write_training_logs


class Shown:
    """A progress bar that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def move_to(self, done: int, text: str = "") -> None:
        self.said.append((done, text))


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FETCH_EVERY", 2)
    monkeypatch.setattr(watch, "FETCHED", ("loss", "grad_norm", "applied"))


def watched(step: TrainStep, folder: Path) -> tuple[Watch, MetricLog]:
    log = MetricLog(folder / "metrics.jsonl", None)
    rates = np.linspace(1, 0, 10, dtype=np.float32)
    return Watch(Firewall(step, every=4), log, Order(80, 8, 0), Recipe(batch_size=8), rates, InputWait(0), 0), log


def run(step: TrainStep, watching: Watch, batches: list[Any], shown: Shown, *, now: set[int]) -> None:
    carry = step.initial_carry()
    for at, columns in enumerate(batches):
        carry, metrics = step(carry, columns)
        watching.saw(at, columns, metrics)
        watching.look(carry, at, shown, now=at in now)  # type: ignore[arg-type]


def test_windows_are_logged_one_behind_and_all_when_it_must_be_known(tmp_path: Path) -> None:
    step, shown = make_step(), Shown()
    watching, log = watched(step, tmp_path)
    run(step, watching, [batch(i) for i in range(7)], shown, now={6})
    rows = read_metrics(log.path)
    assert [row["step"] for row in rows] == list(range(7))
    assert [row["learning_rate"] for row in rows] == pytest.approx(np.linspace(1, 0, 10)[:7])
    assert [done for done, _ in shown.said] == [2, 4, 6, 7]
    assert shown.said[0][1].startswith("no loss, ")  # the first window is on its way
    assert shown.said[1][1].startswith(f"loss {rows[1]['loss']:.4f}, ")
    assert [time["step"] for time in watching.times] == [1, 3, 5, 6]


def test_between_windows_the_last_loss_is_shown(tmp_path: Path) -> None:
    step, shown = make_step(), Shown()
    watching, log = watched(step, tmp_path)
    run(step, watching, [batch(i) for i in range(5)], shown, now={2})
    newest = f"loss {read_metrics(log.path)[2]['loss']:.4f}, "
    assert [text.startswith(newest) for _, text in shown.said] == [False, True, True]  # at 4 one window is on its way


def test_a_skipped_batch_names_its_records_and_moves_no_rate(tmp_path: Path) -> None:
    step, shown = make_step(policy=Policy(skip=True)), Shown()
    watching, log = watched(step, tmp_path)
    run(step, watching, [batch(0), bad_batch(1), batch(2), batch(3), bad_batch(4), batch(5)], shown, now={5})
    rows = read_metrics(log.path)
    assert [row["step"] for row in rows if "skipped" in row] == [1, 4]
    assert rows[1]["records"] == Order(80, 8, 0).ids(1)[1].tolist()
    assert watching.skipped == 2
    assert [row["learning_rate"] for row in rows if "loss" in row] == pytest.approx(np.linspace(1, 0, 10)[:4])


def test_what_went_well_is_logged_before_a_bad_batch_ends_the_training(tmp_path: Path) -> None:
    step, shown = make_step(), Shown()
    watching, log = watched(step, tmp_path)
    with pytest.raises(NonFiniteError, match="step 3"):
        run(step, watching, [batch(0), batch(1), batch(2), bad_batch(3), batch(4), batch(5)], shown, now=set())
    assert [row["step"] for row in read_metrics(log.path)] == [0, 1, 2]


def test_logs_for_other_tools_never_end_a_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = MetricLog(tmp_path / "metrics.jsonl", None)
    write_training_logs(log.path, tmp_path / "logs", [], 0.0)
    assert not (tmp_path / "logs").exists()
    log.append([{"step": 0, "epoch": 0, "loss": 1.0}])
    (tmp_path / "logs").write_text("a file in the folder's place")
    write_training_logs(log.path, tmp_path / "logs", [], 0.0)
    assert "can't be written for other tools" in caplog.text


def test_a_metric_that_is_no_number_is_named_with_its_step(tmp_path: Path) -> None:
    def loss(model: Any, columns: Any) -> Any:
        found = (columns["y"] == 0).sum()
        return loss_fn(model, columns)[0], {"share": found / found}

    step, log = make_step(loss), MetricLog(tmp_path / "metrics.jsonl", None)
    rates, recipe = np.ones(10, np.float32), Recipe(batch_size=8)
    watching = Watch(
        Firewall(step, every=4), log, Order(80, 8, 0), recipe, rates, InputWait(0), 0, beside=("share",)
    )  # fmt: skip
    fine, without = batch(0), {**batch(0), "y": np.ones(8, np.int32)}
    assert (fine["y"] == 0).any()
    with pytest.raises(TrainingError, match="the loss and the gradients of that step were") as caught:
        run(step, watching, [fine, fine, without, fine], Shown(), now={3})
    assert (caught.value.facts["metric"], caught.value.facts["step"]) == ("share", 2)
    assert not isinstance(caught.value, NonFiniteError)
    assert [row["step"] for row in read_metrics(log.path)] == [0, 1]
