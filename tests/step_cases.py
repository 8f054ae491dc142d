"""A tiny model with everything that a step can move: parameters, BatchNorm statistics, random state, an optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from datasets.errors import NonFiniteError
from datasets.schema import Columns, Feature
from tasks.carry import Carry
from tasks.firewall import Firewall
from tasks.losses import cross_entropy
from tasks.step import TrainStep
from tasks.step_metrics import StepMetrics

BATCH = 8
FEATURES = {"x": Feature("float32", (4,)), "y": Feature("int32", classes=("a", "b", "c"))}


class Tiny(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head(self.dropout(nnx.relu(self.norm(self.first(x)))))


def tiny() -> Tiny:
    return Tiny(nnx.Rngs(0))


def loss_fn(model: Tiny, batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
    logits = model(batch["x"])
    return cross_entropy(logits, batch["y"]), {"accuracy": (logits.argmax(-1) == batch["y"]).mean()}


def make_step(loss: Any = loss_fn, **options: Any) -> TrainStep:
    return TrainStep(tiny(), optax.adamw(1e-2), loss, FEATURES, BATCH, **options)


def batch(index: int) -> Columns:
    random = np.random.default_rng(index)
    x = random.normal(size=(BATCH, 4)).astype(np.float32)
    return {"x": x, "y": random.integers(0, 3, BATCH).astype(np.int32)}


def bad_batch(index: int, row: int = 2) -> Columns:
    columns = batch(index)
    columns["x"][row, 1] = np.nan
    return columns


def run(step: TrainStep, carry: Carry, batches: list[Columns]) -> tuple[Carry, list[StepMetrics]]:
    metrics = []
    for columns in batches:
        carry, got = step(carry, columns)
        metrics.append(got)
    return carry, metrics


def watched(step: TrainStep, firewall: Firewall, batches: list[Columns]) -> tuple[Carry, NonFiniteError]:
    """Trains until the firewall stops it; record ids are file and row of a raw file."""
    carry = step.initial_carry()
    try:
        for index, columns in enumerate(batches):
            carry, metrics = step(carry, columns)
            ids = [{"file": "raw", "row": BATCH * index + i} for i in range(BATCH)]
            firewall.observe(index, columns, lambda ids=ids: ids, metrics)
            firewall.check(carry)
        firewall.check(carry, now=True)
    except NonFiniteError as error:
        return carry, error
    raise AssertionError("the firewall let everything pass")


def bits(tree: Any) -> list[tuple[str, bytes]]:
    """Every leaf as bytes, random keys included, by path."""

    def raw(x: jax.Array) -> np.ndarray:
        return np.array(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [(jax.tree_util.keystr(path), raw(x).tobytes()) for path, x in jax.tree.leaves_with_path(tree)]
