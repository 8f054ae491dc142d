"""The training of several members as one program: their batches, the loop, checkpoints, and what each came to.

Every member sees the examples in the order of its own seed, with its own augmentation, as a training of its own does.
Stopped anywhere, it goes on from the newest checkpoint of all members, bit for bit.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grain
import numpy as np

from datasets.errors import TrainingError
from datasets.schema import Columns, Recipe
from tasks.ahead import depth_here, placed_ahead
from tasks.artifact import Artifact
from tasks.autotune import Setting
from tasks.batch_check import BatchCheck
from tasks.batches import Batches
from tasks.carry import Carry
from tasks.checkpoint import Checkpoints
from tasks.feed import as_recorded, columns, open_pipeline
from tasks.objective import Objective
from tasks.pipeline import Pipeline
from tasks.predictor import Predictions, Predictor
from tasks.progress import LOG, Bar, bar
from tasks.signals import StopSignal
from tasks.stage import Job
from tasks.training import SAVE_SECONDS, replaced_order, with_averages
from tasks.vmapped import VmappedStep
from tasks.weights import in_unit

LOOK_EVERY = 25  # steps
SHOWN = 8  # records that are named


@dataclass(frozen=True)
class Stacked:
    """The members' batches of a step as one, [members, batch, ...]; members with one seed share what is read.

    Attributes:
        pipelines: By seed.
        seeds: Of the members.
    """

    pipelines: Mapping[int, Pipeline]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, job: Job, records: Artifact, recipes: Sequence[Recipe]) -> Stacked:
        """The batches that trainings of these recipes see."""
        one = open_pipeline(job.store, job.request, records)
        seeds = tuple(recipe.seed for recipe in recipes)
        return cls({seed: replaced_order(one, replace(one.order, seed=seed)) for seed in seeds}, seeds)

    def batch(self, step: Any) -> Columns:  # noqa: ANN401 - Grain gives NumPy's or Python's ints
        """Gives a step's batches as fresh arrays."""
        made = {seed: pipeline.batch(int(step)) for seed, pipeline in self.pipelines.items()}
        return {name: np.stack([made[seed][name] for seed in self.seeds]) for name in made[self.seeds[0]]}

    def ids(self, step: int, at: int) -> list[int]:
        """The examples that a member sees in a step."""
        return self.pipelines[self.seeds[at]].order.ids(step)[1].tolist()

    def check(self, check: BatchCheck, batch: Columns, step: int) -> None:
        """Checks each batch of a step as a single training does."""
        for at, seed in enumerate(self.seeds):
            if seed not in self.seeds[:at]:
                own = {name: column[at] for name, column in batch.items()}
                check(own, step, functools.partial(self.ids, step, at))


class Members:
    """Several trainings as one.

    Attributes:
        step: Of all members.
        stacked: Their batches.
        total: Steps of the training.
        resumed_from: The step at which this process began, if it wasn't the first.
        seconds: That the loop took.
    """

    def __init__(
        self, job: Job, records: Artifact, setting: Setting, folder: Path, step: VmappedStep, total: int
    ) -> None:  # fmt: skip
        self.job, self.records, self.setting, self.folder = job, records, setting, folder
        self.step, self.total = step, total
        self.stacked = Stacked.of(job, records, step.members)
        self.resumed_from: int | None = None
        self.seconds = 0.0

    def run(self) -> Carry:
        """Trains all members that don't fail to the last step.

        Raises:
            TrainingError: It was stopped by a signal; what was done is in a checkpoint.
            CheckpointError: A checkpoint can't be written or read.
        """
        with Checkpoints(self.folder, keep_best=0, warn=LOG.warning) as checkpoints:
            restored = checkpoints.restore_latest(self.step.abstract_carry())
            carry = self.step.initial_carry() if restored is None else restored.state
            start = 0
            if restored is not None:
                for pipeline, state in zip(self.stacked.pipelines.values(), restored.meta["pipelines"], strict=True):
                    start = self.resumed_from = pipeline.restore(state)
            began = time.perf_counter()
            with StopSignal() as stop, bar(self.job.stage, self.total, "steps") as progress:
                progress.move_to(start)
                carry, done = self._steps(carry, start, checkpoints, stop, progress)
                checkpoints.wait()
            self.seconds = time.perf_counter() - began
            if done < self.total:
                raise TrainingError("the training of the members was stopped", step=done, checkpoint=self.folder)
        return carry

    def _steps(
        self, carry: Carry, start: int, checkpoints: Checkpoints, stop: StopSignal, progress: Bar
    ) -> tuple[Carry, int]:  # fmt: skip
        saved_at, done, every = time.perf_counter(), start, self.job.request.checkpoint_every
        for at, placed in self._batches(start):
            carry, metrics = self.step(carry, placed)
            done = at + 1
            stopping = stop.received is not None
            if done % LOOK_EVERY == 0 and not self._look(carry, done, progress, metrics):
                return carry, self.total  # none is left that could learn more
            late = time.perf_counter() - saved_at >= SAVE_SECONDS or bool(every and done % every == 0)
            if done == self.total or stopping or late:
                checkpoints.check()
                checkpoints.save(done, carry, meta=self._meta(done))
                saved_at = time.perf_counter()
            if stopping:
                break
        return carry, done

    def _look(self, carry: Carry, done: int, progress: Bar, metrics: Mapping[str, Any]) -> bool:
        """Shows how far it is; waits for the device. Gives whether any member still learns."""
        live, losses = np.asarray(carry.tripped_at) < 0, metrics["loss"]
        if live.any():
            low, high = losses[live].min(), losses[live].max()
            progress.move_to(done, f"{live.sum()} of {len(live)} members, loss {low:.4f} to {high:.4f}")
        return bool(live.any())

    def _meta(self, done: int) -> dict[str, Any]:
        return {"pipelines": [one.state(done) for one in self.stacked.pipelines.values()], "key": self.job.key}

    def _batches(self, start: int) -> Iterator[tuple[int, Any]]:
        dataset = grain.MapDataset.range(start, self.total).map(self.stacked.batch)
        with Batches(dataset, **self.setting.reading, where=lambda index: {"step": start + index}) as batches:
            pairs = placed_ahead(self._checked(start, batches), depth_here())
            for at, (_, placed) in enumerate(pairs, start):
                yield at, placed

    def _checked(self, start: int, batches: Iterator[Columns]) -> Iterator[Columns]:
        check = BatchCheck(self.step.features, self.step.batch_size)
        for at, batch in enumerate(batches, start):
            self.stacked.check(check, batch, at)
            yield batch

    def failures(self, carry: Carry) -> dict[int, str]:
        """What went wrong, by the number of the member."""
        tripped, sound = np.asarray(carry.tripped_at), self.step.sound(carry)
        found = {}
        for at, step in enumerate(tripped.tolist()):
            if step >= 0:
                ids = ", ".join(map(str, self.stacked.ids(step, at)[:SHOWN]))
                found[at] = f"step {step}: the loss or a gradient isn't finite (records {ids}, ...)"
            elif not sound[at]:
                found[at] = "the update made a state that isn't finite"
        return found

    def predictions(self, carry: Carry, split: str) -> Iterator[Predictions]:
        """What each member says of a split, by one program for all; a number is in the unit of the records."""
        request = self.job.request
        dataset, source = request.dataset, columns(self.job.store, as_recorded(request), self.records, split)
        objective: Objective = self.step.objective
        predictor: Predictor | None = None
        for at in range(len(self.step.members)):
            model = self.step.model(with_averages(self.step.member(carry, at)))
            model = in_unit(model, request.fitted, dataset.label)
            model.eval()
            predictor = predictor or Predictor(
                model, dataset.inputs, dataset.label, dataset.features[dataset.inputs], 256, objective.target
            )  # fmt: skip
            yield predictor.predict(len(source), source.read, model)
