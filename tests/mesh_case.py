"""A toy training with components like those of a real key, on one mesh or another; what the tests of meshes share."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import toy

from datasets.augment import Shift
from tasks.artifact import Artifact, Store
from tasks.metric_log import read_metrics
from tasks.order import Order
from tasks.parallel import Parallel
from tasks.pipeline import Pipeline
from tasks.request import Request
from tasks.stage import Job
from tasks.step import TrainStep
from tasks.training import METRICS

BATCH, EVERY = 16, 4
EPOCH = toy.TRAIN // BATCH
STEPS = 2 * EPOCH


def request_for(store: Path, parallel: Parallel, **recipe: Any) -> Request:
    """An mlp with dropout on shuffled, augmented pictures: random numbers that no mesh may change."""
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    request = toy.request_for(
        store, made, model="mlp", dropout=0.5, augment=(Shift(1),), checkpoint_every=EVERY, **recipe
    )
    return replace(request, parallel=parallel)


def job_for(request: Request, key: str, training: str) -> Job:
    """A job of `fit`; jobs of one `training` differ in nothing but their mesh."""
    components = {"stage": "fit", "parameters": {**request.parallel.in_key(), "training": training}}
    return replace(toy.job(request, "fit", key), components=components)


def job_of(said: Mapping[str, Any]) -> Job:
    """What `one_process.job_of` makes of a job, for a dataset that is no file."""
    parallel = Parallel(said["request"]["devices"], said["request"]["processes"])
    store = Path(said["request"]["store"])
    request = request_for(store, parallel, **json.loads(os.environ["RECIPE"]))
    return Job(said["stage"], said["key"], said["components"], request, Store(store))


def losses(request: Request, artifact: Artifact) -> list[float]:
    """Of each step of the train split, then of each evaluation."""
    rows = read_metrics(Store(request.store).path(artifact) / METRICS)
    return [row["loss"] for row in rows if "loss" in row] + [row["test_loss"] for row in rows if "test_loss" in row]


def note_ids(file: Path) -> None:
    """Every batch that is read from now on leaves a line: step, and the examples that were read for it."""
    original = Pipeline.batch

    def noting(self: Pipeline, step: int) -> Any:
        columns = original(self, step)
        with file.open("a") as out:
            out.write(f"{step} {' '.join(map(str, self.order.ids(step)[1].tolist()))}\n")
        return columns

    Pipeline.batch = noting


def ids_of(file: Path) -> dict[int, list[int]]:
    """The examples of each step that `note_ids` noted; of a step that was read twice, the last."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {int(step): [int(i) for i in ids] for step, *ids in rows}


def whole_order() -> dict[int, list[int]]:
    """The examples of each step that one process reads."""
    order = Order(toy.TRAIN, BATCH, seed=3)
    return {step: order.ids(step)[1].tolist() for step in range(STEPS)}


def at_step(step: int, signal_name: str) -> None:
    """This process sends itself a signal before a step."""
    original = TrainStep.__call__

    def acting(self: TrainStep, carry: Any, batch: Any) -> Any:
        if int(carry.step) == step:
            os.kill(os.getpid(), signal.Signals[signal_name])
        return original(self, carry, batch)

    TrainStep.__call__ = acting


def same_within_rounding(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and np.allclose(one, other, rtol=2e-5, atol=1e-6)
