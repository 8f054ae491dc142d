"""How fast the whole fit loop is: against a bare `jax.jit` loop, the loop of NNX tutorials, and PyTorch.

Ours is `tasks.training` as the flow runs it: feed, contracts, trace budget, firewall, metrics of every step, and
checkpoints; evaluation is left out of the time. The others take the same examples from arrays in memory, keep nothing
and check nothing. Each has rounds of its own with ours, one right after the other in alternating order: what a third
loop leaves in the heap slowed ours by 8 % (an MLP's step), which no training in a process of its own would feel.

PyTorch is never in the product's environment: GRISTMILL_PEERS names the Python of one that has it.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from datasets.splits import Rows
from tasks.artifact import Store
from tasks.benchmark import Measure, in_turns, paired
from tasks.compiled import use_compilation_cache
from tasks.convert import convert_raw
from tasks.feed import chosen_setting, columns, plan_input
from tasks.fetch import fetch_raw, prepared
from tasks.objective import Objective
from tasks.optimizers import build_optimizer
from tasks.stage import Job
from tasks.training import Training
from tasks.validate import validate_records

PEER = Path(__file__).parent.parent / "peers" / "torch_fit.py"
ROUNDS = {"cnn": 5, "mlp": 15}  # of a few seconds each: short ones vary more
CASES = {"cnn": (128, 64, 3, "<= 1.02"), "mlp": (64, 937, 3, "<= 1.10")}
"""By model: examples a step, steps an epoch, epochs of a round, goal against the bare loop.

The epoch of the MLP is that of the whole MNIST, or what each evaluation and the last save cost would be spread over
fewer steps than in any real training; the bundled digits are repeated for it.
"""
BUNDLED, TESTED = 10_000, 100
BARE, TUTORIAL, TORCH = "bare jax.jit", "nnx.jit as in tutorials", "PyTorch"

Pairs = list[tuple[float, float]]
"""Seconds of ours and of another loop, a round each."""


def run(rounds: int | None = None, cases: dict[str, tuple[int, int, int, str]] = CASES) -> list[Measure]:
    """All measures; about eight minutes on two idle cores. `rounds` stands for those of every model."""
    measures: list[Measure] = []
    for model, (batch, steps, epochs, goal) in cases.items():
        with tempfile.TemporaryDirectory(prefix="gristmill-fit-") as folder, ExitStack() as stack:
            bench = Bench(Path(folder), model, batch, steps, epochs)
            count = rounds or ROUNDS[model]
            pairs = {BARE: pairs_of(bench.ours, bench.bare(), count)}
            pairs[TUTORIAL] = pairs_of(bench.ours, bench.tutorial(), count)
            torch = stack.enter_context(peer(bench)) if model == "cnn" else None
            if torch is not None:
                pairs[TORCH] = pairs_of(bench.ours, torch, count)
            measures += report(model, batch, bench.steps, pairs, goal)
    return measures


def pairs_of(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pairs:
    """Seconds of both loops, a pair a round in alternating order, after one round of each that doesn't count."""
    of_theirs, of_ours = in_turns(theirs, ours, rounds + 1)
    return list(zip(of_ours, of_theirs, strict=True))[1:]


def report(model: str, batch: int, steps: int, pairs: Mapping[str, Pairs], goal: str) -> list[Measure]:
    """Milliseconds a step; ratios are ours / theirs, so below 1 is faster than they are.

    The goal against the tutorials' loop is stated as a speed-up, so there the ratio is theirs / ours.
    """
    ms = {name: [[1000 * seconds / steps for seconds in each] for each in zip(*found, strict=True)]
          for name, found in pairs.items()}  # fmt: skip
    what = f"{model} b{batch}, a step"
    found = [paired(what, "ms", *ms[BARE], against=BARE, goal=goal)]
    goal = ">= 2" if model == "mlp" else ""
    found.append(paired(f"{what} of {TUTORIAL}", "ms", *reversed(ms[TUTORIAL]), against="ours", goal=goal))
    if TORCH in ms:
        found.append(paired(what, "ms", *ms[TORCH], against=TORCH, goal="<= 1"))
    elif model == "cnn":
        found.append(Measure(f"{what} of {TORCH}", 0.0, "not installed: GRISTMILL_PEERS"))
    return found


class Bench:
    """The bundled digits, and loops over them.

    Attributes:
        model: Name of the model.
        batch: Examples a step.
        steps: Of one round.
        arrays: The train split in memory.
    """

    def __init__(self, root: Path, model: str, batch: int, steps: int, epochs: int) -> None:
        request = prepared("mnist", store=root, model=model, batch_size=batch, epochs=epochs, learning_rate=1e-3)
        dataset, copies = request.dataset, -(-(batch * steps + TESTED) // BUNDLED)
        rows = {"train": Rows(0, batch * steps), "test": Rows(copies * BUNDLED - TESTED, copies * BUNDLED)}
        self.dataset = replace(
            dataset, splits=rows, recipe=replace(dataset.recipe, dropout=0.0),
            validation=replace(dataset.validation, leaks="warn"),
            read=lambda raw: itertools.chain.from_iterable(dataset.read(raw) for _ in range(copies)),
        )  # fmt: skip
        self._request, self._store = replace(request, dataset=self.dataset), Store(root)
        use_compilation_cache(root)
        self.model, self.batch, self.steps, self._epochs, self._round = model, batch, steps * epochs, epochs, 0
        self._records = convert_raw(self._job("convert"), raw=fetch_raw(self._job("fetch")))
        checked = validate_records(self._job("validate"), records=self._records)
        self._setting = chosen_setting(self._store, plan_input(self._job("feed"), self._records, checked))
        train = columns(self._store, self._request, self._records, "train")
        self.arrays = train.read(np.arange(len(train)))

    def _job(self, stage: str) -> Job:
        return Job(stage, f"{stage}-{self._round}", {}, self._request, self._store)

    def ours(self) -> float:
        """Seconds of one training by the product, from its first step to its last."""
        self._round += 1
        job = self._job("fit")
        training = Training(job, self._records, self._setting, self._store.root / "checkpoints" / job.key)
        training.run()
        return training.seconds - training.evaluating

    def order(self) -> Iterator[np.ndarray]:
        """Ids of each step's examples, a new permutation each epoch."""
        random = np.random.default_rng(0)
        for _ in range(self._epochs):
            permutation = random.permutation(len(self.arrays["label"]))
            yield from permutation.reshape(-1, self.batch)

    def bare(self) -> Callable[[], float]:
        """What one writes who wants nothing but speed: one jitted function of arrays, its state donated."""
        model = Objective(self.dataset).model
        model.train()
        graph, parameters, rest = nnx.split(model, nnx.Param, ...)
        rule = build_optimizer(self.dataset.recipe, self.steps)

        def loss_of(parameters: Any, rest: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Any]:  # noqa: ANN401
            model = nnx.merge(graph, parameters, rest)
            logits = model(x)  # type: ignore[operator]
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            return loss, nnx.as_pure(nnx.state(model, nnx.Not(nnx.Param)))

        def step(carry: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:  # noqa: ANN401
            parameters, rest, state = carry
            (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, rest, x, y)
            updates, state = rule.update(gradients, state, parameters)
            return (optax.apply_updates(parameters, updates), rest, state), loss

        jitted = jax.jit(step, donate_argnums=0)
        parameters, rest = nnx.as_pure(parameters), nnx.as_pure(rest)
        x, y = self.arrays["image"], self.arrays["label"]

        def loop() -> float:
            carry = jax.tree.map(jnp.copy, (parameters, rest, rule.init(parameters)))
            jax.block_until_ready(carry)
            began = time.perf_counter()
            loss = None
            for ids in self.order():
                carry, loss = jitted(carry, x[ids], y[ids])
            jax.block_until_ready(loss)
            return time.perf_counter() - began

        return loop

    def tutorial(self) -> Callable[[], float]:
        """The loop of Flax's own MNIST tutorial: `nnx.jit` over model, optimizer and metrics."""

        def loss_fn(model: Any, batch: Any) -> tuple[jax.Array, jax.Array]:  # noqa: ANN401
            logits = model(batch["image"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean(), logits

        @nnx.jit
        def train_step(model: Any, optimizer: Any, metrics: Any, batch: Any) -> None:  # noqa: ANN401
            (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
            metrics.update(loss=loss, logits=logits, labels=batch["label"])
            optimizer.update(model, grads)

        def loop() -> float:
            model = Objective(self.dataset).model
            model.train()
            optimizer = nnx.Optimizer(model, rule, wrt=nnx.Param)
            metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
            began = time.perf_counter()
            for ids in self.order():
                train_step(model, optimizer, metrics, {name: column[ids] for name, column in self.arrays.items()})
            metrics.compute()["loss"].block_until_ready()
            return time.perf_counter() - began

        rule = build_optimizer(self.dataset.recipe, self.steps)
        return loop


@contextmanager
def peer(bench: Bench) -> Iterator[Callable[[], float] | None]:
    """A loop in PyTorch, in an interpreter of its own; None if there is none."""
    python = os.environ.get("GRISTMILL_PEERS")
    if not python:
        yield None
        return
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, image=bench.arrays["image"], label=bench.arrays["label"])
        file.flush()
        order = np.stack(list(bench.order()))
        with tempfile.NamedTemporaryFile(suffix=".npy") as ids:
            np.save(ids, order)
            ids.flush()
            process = subprocess.Popen(  # noqa: S603
                [python, "-EP", str(PEER), bench.model, file.name, ids.name], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )  # fmt: skip
            try:
                yield None if "missing" in answer(process) else lambda: float(answer(process)["seconds"])
            finally:
                process.terminate()
                process.communicate()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Asks the other interpreter for one loop."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    process.stdin.write("loop\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())
