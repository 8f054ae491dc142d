"""The training loop: feed, guarded step, metrics, checkpoints; stopped anywhere, it goes on bit for bit.

The position in the data is the step, because the order of examples is a pure function of it. A checkpoint holds the
whole carry (model, optimizer, random state, step) and the identity of the pipeline; the metric log is cut back to it.
"""

from __future__ import annotations

import copy
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from datasets.errors import NonFiniteError, TrainingError
from datasets.schema import Columns
from tasks.ahead import depth_here
from tasks.artifact import Artifact, Draft
from tasks.autotune import Setting
from tasks.batch_check import BatchCheck
from tasks.beginning import beginning
from tasks.canonical import canonical
from tasks.carry import Carry
from tasks.checkpoint import Checkpoints
from tasks.compiled import use_compilation_cache
from tasks.debug_checks import DebugStep, watching_layers
from tasks.durable import write_bytes
from tasks.early_stopping import EarlyStopping
from tasks.eval_step import EvalStep
from tasks.feed import check_vouched, chosen_setting, columns, open_pipeline
from tasks.firewall import Firewall
from tasks.fitted import write_fitted
from tasks.input_wait import InputWait
from tasks.mesh import Mesh
from tasks.metric_log import MetricLog, Position
from tasks.objective import Objective, weights_of_classes
from tasks.optimizers import averaged, learning_rates
from tasks.order import Order
from tasks.other_mesh import segments
from tasks.pipeline import Pipeline
from tasks.post_mortem import context
from tasks.progress import LOG, Bar, bar
from tasks.signals import StopSignal
from tasks.silent import NoCheckpoints, NoLog
from tasks.stage import Job
from tasks.step import Batch
from tasks.warm_start import load, said
from tasks.watch import FETCH_EVERY, Watch, write_training_logs
from tasks.weights import save_weights

SAVE_SECONDS = 30.0
METRICS = "metrics.jsonl"
MODEL_TABLE = "model.txt"
BEST = ("test_loss", "min")
"""The metric that ranks checkpoints, and where it is best."""


def train(job: Job, records: Artifact, report: Artifact, plan: Artifact) -> Artifact:
    """Does the work of stage `fit`, or of one of its processes; see there."""
    mesh = Mesh(job.request.parallel, job.request.dataset.recipe.batch_size)
    check_vouched(job.store, records, report)
    use_compilation_cache(job.store.root)
    folder = job.store.root / "checkpoints" / job.request.name / job.key
    if mesh.first:
        job.store.verify(records)
        if job.anew:
            job.store.discard(folder)
    training = Training(job, records, chosen_setting(job.store, plan), folder, mesh)
    table = training.objective.table()
    LOG.info("the model, %s parameters:\n%s", f"{training.parameters:,}", table)
    try:
        carry = training.run()
    finally:  # what is known of a training that failed is worth most
        training.write_logs()
    job.notes.update(training.notes())

    def fill(draft: Draft) -> None:
        save_weights(draft.folder, training.step.model(training.evaluated(carry)), job.request.dataset)
        write_fitted(draft.folder, job.request.fitted)
        write_bytes(draft.folder / METRICS, (folder / METRICS).read_bytes())
        write_bytes(draft.folder / MODEL_TABLE, table.encode())
        draft.facts = {"records": records.digest, "steps": int(carry.step), "parameters": training.parameters}
        if len(training.meshes) > 1:  # then the key doesn't say it
            draft.facts["meshes"] = training.meshes

    if mesh.first:
        return Artifact(**json.loads(mesh.told(json.dumps(job.commit("weights", fill).to_json()))))
    return Artifact(**json.loads(mesh.told("")))


class Training:
    """One training, from its first step or from its newest checkpoint to its last step.

    Attributes:
        step: The compiled train step.
        total: Steps of the whole training.
        parameters: How many numbers are learned.
    """

    def __init__(self, job: Job, records: Artifact, setting: Setting, folder: Path, mesh: Mesh | None = None) -> None:
        dataset, recipe = job.request.dataset, job.request.dataset.recipe
        mesh = mesh or Mesh(job.request.parallel, recipe.batch_size)
        if mesh.split is not None:
            setting = replace(setting, resident=False)  # what is resident lies on one device
        self.job, self.dataset, self.recipe, self.folder, self.setting = job, dataset, recipe, folder, setting
        self.records, self.mesh = records, mesh
        self.pipeline: Pipeline = open_pipeline(job.store, job.request, records, resident=setting.resident)
        self.order = self.pipeline.order  # of whole batches
        self.pipeline.order = self.order.shared(mesh)
        self.total = self.order.total_steps(recipe.epochs)
        self.objective = Objective(dataset, weights_of_classes(job.store, job.request, records))
        self.parameters, model = self.objective.parameters, self.objective.model
        start = job.request.warm_start
        self.warm_start = None if start is None else load(start, model)
        if self.warm_start is not None:
            LOG.info("warm start from %s: %s", self.warm_start["from"], said(self.warm_start))
        self.step = self.objective.train_step(self.total, watching_layers, **mesh.shardings)
        self.stepped = DebugStep(self.step) if job.request.debug_checks else self.step
        if job.request.debug_checks:
            LOG.warning("debug mode: every value of every step is checked, which takes many times as long")
        self.eval_step = EvalStep(
            model, self._example_metrics, dataset.features, recipe.batch_size, self.step.abstract_carry(),
            sharding=mesh.split, place=mesh.place,
        )  # fmt: skip
        self.rates = learning_rates(recipe, self.total)
        self.test = columns(job.store, job.request, records, "test")
        self.resumed_from: int | None = None
        self.meshes = segments(None, mesh.asked.mesh())
        self.seconds = self.evaluating = 0.0
        self.wait = InputWait(0)
        self.began = time.time()
        self.watch: Watch | None = None
        self.cost: dict[str, Any] = {}
        self.stopping = EarlyStopping(recipe.early_stopping)
        self.done = 0

    def _example_metrics(self, model: Any, batch: Batch) -> dict[str, jax.Array]:  # noqa: ANN401
        return {f"test_{name}": value for name, value in self.objective.example_metrics(model, batch).items()}

    def evaluated(self, carry: Carry) -> Carry:
        """The carry with the parameters that are evaluated and kept: their average, if the recipe has one."""
        return with_averages(carry)

    def run(self) -> Carry:
        """Trains to the last step and gives the carry after it.

        Raises:
            NonFiniteError: A loss or gradient was NaN or infinite; the last checkpoint is from before it.
        """
        path, (metric, mode) = self.folder / METRICS, BEST
        writing = Checkpoints(
            self.folder, keep_best=self.job.request.keep_best, metric=metric, mode=mode, warn=LOG.warning
        ) if self.mesh.first else NoCheckpoints()  # fmt: skip
        with writing as checkpoints:
            restored = beginning(
                self.mesh, checkpoints, self.folder, self.job.components, self.recipe, self.total,
                self.step.abstract_carry(), METRICS, anew=self.job.anew,
            )  # fmt: skip
            carry = self.step.initial_carry() if restored is None else restored.state
            start = 0
            if restored is not None:
                start = self.resumed_from = self.pipeline.restore(restored.meta["pipeline"])
                self.stopping = EarlyStopping(self.recipe.early_stopping, restored.meta.get("early_stopping"))
                self.meshes = segments(restored, self.mesh.asked.mesh())
            position = None if restored is None else restored.meta["metrics"]
            log = MetricLog(path, position) if self.mesh.first else NoLog()
            try:
                with StopSignal() as stop, bar("fit", self.total, "steps") as progress:
                    progress.move_to(start)
                    carry = self._steps(carry, start, checkpoints, log, stop, progress)
                    checkpoints.wait()  # before the signal is handed on, which may end the process at once
                    self.mesh.told("")  # and the others don't end before the first
            finally:
                log.close()
            if (
                int(carry.step) < self.total and not self.stopping.over
            ):  # a handler that lets the process live must not make half a model
                raise TrainingError("the training was stopped", step=int(carry.step), checkpoint=self.folder)
            self.cost, self.done = asdict(checkpoints.cost), int(carry.step)
        return carry

    def _steps(
        self, carry: Carry, start: int, checkpoints: Checkpoints | NoCheckpoints, log: MetricLog | NoLog,
        stop: StopSignal, progress: Bar,
    ) -> Carry:  # fmt: skip
        self.wait = InputWait(start)
        firewall = Firewall(
            self.step, every=2 * FETCH_EVERY, folder=self._capsules(), whole=self._whole_batch,
            context=context(self.job.request.name, self.recipe, self.total, self.objective.weights, self.records,
                            self.job.components, self.job.request.fitted),
        )  # fmt: skip
        self.watch = watch = Watch(
            firewall, log, self.order, self.recipe, self.rates, self.wait, int(carry.skipped),
            (self.objective.target.beside,),
        )  # fmt: skip
        began = saved_at = time.perf_counter()
        for at, batch, placed in () if self.stopping.over else self._batches(start):
            carry, metrics = self.stepped(carry, placed)
            checkpoints.check()  # a save that failed meanwhile ends the run now, not at the next one
            watch.saw(at, batch, metrics)
            done = at + 1
            last, every = done == self.total, self.job.request.checkpoint_every
            # Asked once: a signal may come between two lines.
            late, stopping = self.mesh.agree(
                done, time.perf_counter() - saved_at >= SAVE_SECONDS, stop.received is not None
            )
            due = last or (every and done % every == 0) or late
            evaluates = self._evaluates_at(done)
            watch.look(carry, at, progress, now=bool(due or evaluates or stopping))
            began_evaluating = time.perf_counter()
            tested = self._evaluate(carry, at) if evaluates else {}
            self.evaluating += time.perf_counter() - began_evaluating
            if tested:
                log.append([tested])
            scores = {name: tested[name] for name in tested if name in BEST}
            if BEST[0] in tested:
                self.stopping.see(tested[BEST[0]])
            over = self.stopping.over
            if due or stopping or over:
                self._refuse_poisoned(carry, at)
                checkpoints.save(done, carry, meta=self._meta(done, log.sync()), metrics=scores)
                saved_at = time.perf_counter()
            elif scores and checkpoints.would_be_best(scores):
                self._refuse_poisoned(carry, at)
                checkpoints.hold(done, carry, meta=self._meta(done, log.position()), metrics=scores)
            if stopping or over:
                break
        self.seconds = time.perf_counter() - began
        if warning := self.wait.warning(self.seconds, augmented=bool(self.recipe.augment)):
            LOG.warning("%s", warning)
        return carry

    def write_logs(self) -> None:
        """Parquet and TensorBoard's events of all steps so far, below `logs/` in the store."""
        if self.mesh.first:
            folder = self.job.store.root / "logs" / self.job.request.name / self.job.key
            times = [] if self.watch is None else self.watch.times
            write_training_logs(self.folder / METRICS, folder, times, self.began)

    def _evaluates_at(self, done: int) -> bool:
        every = self.recipe.evaluate_every
        return done % self.order.steps_per_epoch == 0 or (every is not None and done % every == 0)

    def _capsules(self) -> Path | None:
        return self.job.store.root / "capsules" / self.job.request.name if self.mesh.first else None

    def _whole_batch(self, at: int, share: Batch) -> Batch:
        """The batch of a step, of which this process has read a share."""
        return share if self.mesh.shard_count == 1 else replaced_order(self.pipeline, self.order).batch(at)

    def _refuse_poisoned(self, carry: Carry, at: int) -> None:
        """The firewall guards loss and gradients; an optimizer can still make NaN of finite gradients."""
        if bad := self.step.poisoned(carry):
            raise NonFiniteError(
                "the update made a state that isn't finite; it is not saved", step=at, leaves=", ".join(bad[:8]),
                cure="a smaller learning rate or clip_norm; the last checkpoint is from before it",
            )  # fmt: skip

    def _meta(self, done: int, logged: Position) -> dict[str, Any]:
        """What a checkpoint says besides the carry; the first three decide how the training goes on."""
        return {
            "pipeline": self.pipeline.state(done),
            "metrics": logged,
            "early_stopping": self.stopping.state(),
            "meshes": self.meshes,
            "key": self.job.key,
            "recipe": canonical(self.recipe, set()),
            "versions": versions(),
        }

    def _batches(self, start: int) -> Iterator[tuple[int, Columns, Batch]]:
        """Step, its batch, and what the compiled step takes; what is spent waiting for batches is counted."""
        with self.pipeline.iterate(start, self.total, **self.setting.reading) as batches:
            depth = 0 if self.setting.resident else depth_here()
            pairs = self.mesh.placed(self._checked(start, batches), depth)
            for at, (batch, placed) in enumerate(pairs, start):
                yield at, batch, placed

    def _checked(self, start: int, batches: Iterator[Columns]) -> Iterator[Columns]:
        order, share = self.pipeline.order, self.pipeline.order.share
        check = BatchCheck(self.dataset.features, share.stop - share.start)
        for at in range(start, self.total):
            asked = time.perf_counter()
            batch = next(batches)
            self.wait.add(time.perf_counter() - asked)
            if not self.setting.resident:  # then every row was checked when it was put on the device
                check(batch, at, lambda at=at: order.ids(at)[1])
            yield batch

    def _evaluate(self, carry: Carry, at: int) -> dict[str, Any]:
        size, batch_size = len(self.test), self.recipe.batch_size
        batches = (self.test.read(np.arange(i, min(i + batch_size, size))) for i in range(0, size, batch_size))
        means = self.eval_step.evaluate(self.evaluated(carry), batches)
        if not np.isfinite(means["test_loss"]):
            raise NonFiniteError(
                "the loss of the test split isn't finite", split="test", step=at, got=means["test_loss"],
                cure="look for extreme values in the validation report of the test split",
            )  # fmt: skip
        return {"step": at, "epoch": self.order.epoch(at), **means}

    def notes(self) -> dict[str, Any]:
        """What this process measured, for the summary: nothing of it decides the weights."""
        steps = self.done - (self.resumed_from or 0)
        return {
            "resumed_from": self.resumed_from,
            "steps": steps,
            "examples_per_second": steps * self.recipe.batch_size / self.seconds if self.seconds else None,
            "input_wait": self.wait.share(self.seconds),
            "input_waits": self.wait.report(),
            "traces": {"train": self.step.report(), "eval": self.eval_step.budget.report()},
            "skipped_batches": 0 if self.watch is None else self.watch.skipped,
            "checkpoints": {**self.cost, "share": self.cost["blocked_s"] / self.seconds if self.seconds else 0.0},
            "warm_start": self.warm_start,
            "meshes": self.meshes,
        }


def replaced_order(pipeline: Pipeline, order: Order) -> Pipeline:
    """The same pipeline in another order."""
    other = copy.copy(pipeline)
    other.order = order
    return other


def with_averages(carry: Carry) -> Carry:
    """The carry with the average of its parameters in their place, if the optimizer keeps one."""
    average = averaged(carry.state["optimizer"])
    if average is None:
        return carry
    return replace(carry, state={**carry.state, "model": overlaid(carry.state["model"], average)})


def overlaid(state: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Nested dicts, with the leaves of `top` in the place of those of `state`."""
    return {k: overlaid(v, top[k]) if isinstance(v, dict) and k in top else top.get(k, v) for k, v in state.items()}


@cache
def versions() -> dict[str, str]:
    """Of what decides the bits of a training."""
    return {"python": platform.python_version(), **{n: version(n) for n in ("jax", "jaxlib", "flax", "optax")}}
