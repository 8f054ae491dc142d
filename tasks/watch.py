"""What the host learns of the steps of a training: the firewall's looks, the metric log, progress and speed.

Nothing here decides a weight. The device is waited for only where the training needs to know (`look(..., now=True)`);
between those, windows of metrics arrive one behind (`fetching.py`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import TrainingError
from datasets.recipe import Recipe
from tasks.carry import Carry
from tasks.event_log import write_logs
from tasks.fetching import Fetching
from tasks.firewall import Firewall, Skip
from tasks.input_wait import InputWait
from tasks.metric_log import MetricLog, read_metrics
from tasks.order import Order
from tasks.progress import LOG, Bar
from tasks.silent import NoLog
from tasks.step import Batch
from tasks.step_metrics import StepMetrics

FETCH_EVERY = 25
FETCHED = ("loss", "grad_norm", "applied")


class Watch:
    """Watches one run of a training's loop.

    Args:
        firewall: Of the step that is watched; it must allow two windows of FETCH_EVERY steps between looks.
        log: Takes a row for each step.
        order: Of whole batches.
        recipe: Of the training.
        rates: float32 [updates], the learning rate of each.
        wait: For batches, so far.
        skipped: Batches that were left out before.
        beside: Metrics of the loss function that are logged too.

    Attributes:
        skipped: Batches that were left out so far.
        times: For each look: step, seconds since the start, and how the steps since the look before went.
    """

    def __init__(
        self, firewall: Firewall, log: MetricLog | NoLog, order: Order, recipe: Recipe, rates: np.ndarray,
        wait: InputWait, skipped: int, beside: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._firewall, self._log, self._order, self._recipe, self._rates = firewall, log, order, recipe, rates
        self._wait, self._waited, self.skipped, self._beside = wait, 0.0, skipped, tuple(beside)
        self._fetching, self._left_out = Fetching((FETCHED[0], *beside, *FETCHED[1:]), FETCH_EVERY), dict[int, Skip]()
        self._began, self._first, self._loss = time.perf_counter(), -1, "no loss"
        self.times: list[dict[str, Any]] = []

    def saw(self, at: int, batch: Batch, metrics: StepMetrics) -> None:
        """Takes note of a step; fetches nothing."""
        self._first = at if self._first < 0 else self._first
        self._firewall.observe(at, batch, lambda: self._order.ids(at)[1].tolist(), metrics)
        self._fetching.add(metrics)

    def look(self, carry: Carry, at: int, progress: Bar, *, now: bool) -> None:
        """Logs what has arrived when a window is full, and with `now` every step up to this one.

        Args:
            carry: Of the newest step.
            at: That step.
            progress: Shows the loss and the speed.
            now: Wait for the device.

        Raises:
            NonFiniteError: The latch tripped.
            TrainingError: Another metric of the loss function than the loss is NaN or infinite.
        """
        if not (now or self._fetching.full):
            return
        first = at + 1 - self._fetching.count
        found = list(enumerate(self._fetching.all() if now else self._fetching.older(), first))
        sound = list(itertools.takewhile(lambda row: row[1]["applied"], found))
        rows: list[dict[str, Any]] = []
        try:
            rows.extend(self._row(*row) for row in sound)
        finally:
            self._log.append(rows)  # what went well, before what may end the training
        if len(sound) < len(found):
            self._left_out |= {skip.verdict.step: skip for skip in self._firewall.check(carry, now=True)}
        else:
            self._firewall.passed(at - self._fetching.count)
        rest = [self._row(*row) for row in found[len(sound) :]]
        self._log.append(rest)
        rows += rest
        self._loss = next((f"loss {row['loss']:.4f}" for row in reversed(rows) if "loss" in row), self._loss)
        progress.move_to(at + 1, f"{self._loss}, {self._timed(at):,.0f} examples/s")

    def _row(self, at: int, numbers: dict[str, float]) -> dict[str, Any]:
        """A batch that was left out has no loss, but names its records."""
        place = {"step": at, "epoch": self._order.epoch(at)}
        if not numbers.pop("applied"):
            self.skipped += 1
            skip = self._left_out.pop(at)
            return {**place, "skipped": skip.verdict.kind, "records": list(skip.records)}
        for name in self._beside:
            if not math.isfinite(numbers[name]):
                raise TrainingError(
                    "a metric of the loss function is not finite; the loss and the gradients of that step were",
                    metric=name, step=at, got=numbers[name], expected="a finite number",
                    cure="guard its formula: a division by a count that can be 0, a logarithm of 0",
                )  # fmt: skip
        update = (at - self.skipped) // self._recipe.accumulate
        return {**place, **numbers, "learning_rate": self._rates.item(min(update, len(self._rates) - 1))}

    def _timed(self, at: int) -> float:
        """Notes how the steps since the last look went; gives examples a second since the start."""
        seconds = time.perf_counter() - self._began
        waited, self._waited = self._wait.seconds - self._waited, self._wait.seconds
        last = self.times[-1] if self.times else {"step": self._first - 1, "seconds": 0.0}
        count, spent = at - last["step"], max(seconds - last["seconds"], 1e-9)
        rate = count * self._recipe.batch_size / spent
        if count:
            self.times.append({"step": at, "seconds": seconds, "step_ms": 1000 * spent / count,
                               "examples_per_second": rate, "input_wait": waited / spent})  # fmt: skip
        return (at + 1 - self._first) * self._recipe.batch_size / seconds


def write_training_logs(metrics: Path, folder: Path, times: list[dict[str, Any]], began: float) -> None:
    """Parquet and TensorBoard's events of all steps so far.

    Args:
        metrics: The metric log.
        folder: Where they go.
        times: As `Watch.times`.
        began: Start of the training, seconds since 1970.
    """
    if rows := read_metrics(metrics):
        try:
            write_logs(folder, rows, times, began)
        except OSError as error:  # no weight depends on them
            LOG.warning("the metrics can't be written for other tools: %s", error)
