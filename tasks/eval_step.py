"""Evaluation: its own program with a budget of its own, eval mode on a copy, every example counted exactly once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Columns, Feature
from tasks.budget import TraceBudget
from tasks.carry import Carry
from tasks.contracts import batch_contract, surfacing
from tasks.plain_state import PlainState
from tasks.step import Batch, abstract_batch, refusal

MASK = "mask"
"""Column that says which rows are examples (True) and which only fill the last batch (False)."""

ExampleMetrics = Callable[[Any, Batch], dict[str, jax.Array]]
"""From a model in eval mode and a batch to one value, or one row of values, for each example: [batch, ...]."""


def pad_batch(batch: Columns, batch_size: int) -> Columns:
    """Fills a batch up to `batch_size` rows by repeating its last row, and adds the column `mask`.

    Args:
        batch: One array a feature with 1 to `batch_size` rows.
        batch_size: Rows wanted.

    Returns:
        The columns with `batch_size` rows, and mask bool [batch_size].

    Raises:
        ContractError: It has no rows, too many, or columns of different lengths.
    """
    counts = {len(column) for column in batch.values()}
    rows = next(iter(counts), 0)
    if len(counts) != 1 or not 1 <= rows <= batch_size:
        raise ContractError("a batch can't be filled up", got=sorted(counts), expected=f"1 to {batch_size} rows")
    fill = batch_size - rows
    padded = {
        name: np.concatenate([column, np.repeat(column[-1:], fill, axis=0)]) if fill else column
        for name, column in batch.items()
    }
    return {**padded, MASK: np.arange(batch_size) < rows}


class EvalStep:
    """Sums of metrics over a batch's examples; compiled when it is made, leaves the training's carry as it is.

    Attributes:
        budget: Its traces and compilations.
    """

    def __init__(
        self,
        model: nnx.Module,
        metrics: ExampleMetrics,
        features: Mapping[str, Feature],
        batch_size: int,
        carry: Carry,
        *,
        budget: int = 1,
        name: str = "eval_step",
        sharding: jax.sharding.Sharding | None = None,
        place: Callable[[Columns], Batch] = lambda batch: batch,
    ) -> None:
        """Traces and compiles; touches neither `model` nor any data.

        Args:
            model: The one that is trained; copied, and the copy set to eval mode.
            metrics: Gives [batch, ...] for each metric.
            features: Columns of a batch without the mask.
            batch_size: Rows of a batch.
            carry: `TrainStep.abstract_carry()`.
            budget: Traces allowed.
            name: Of the program.
            sharding: Of a batch; left open if None.
            place: Puts a batch there.

        Raises:
            ContractError: Model or metrics break a contract while they are traced.
        """
        self.features = {**features, MASK: Feature("bool")}
        self.batch_size = batch_size
        self.budget = TraceBudget(name, budget)
        self._metrics, self._place = surfacing(name, metrics), place
        # A copy, because eval mode is a static part of the model and would make the train step another program.
        copy = nnx.clone(model)
        copy.eval()
        self._model = PlainState(copy)
        self._expected = (carry.state["model"], abstract_batch(self.features, batch_size, sharding))
        whole = jax.tree.leaves(self._expected[0])[0].sharding
        self._compiled = self.budget.compile(self.function, *self._expected, out_shardings=whole)

    def __call__(self, carry: Carry, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the rows where `mask` is True; on the device. Adds "examples", their count.

        Raises:
            TraceBudgetExceeded: The batch isn't what the step was compiled for; nothing has run.
        """
        arguments = (carry.state["model"], batch)
        try:
            return self._compiled(*arguments)
        except (TypeError, ValueError, RuntimeError) as error:
            refused = refusal(self.budget, inspect.signature(self.function), self._expected, arguments)
            if refused is None:
                raise
            raise refused from error

    def function(self, state: dict[str, Any], batch: Batch) -> dict[str, jax.Array]:
        """The step as a plain function of the model's arrays and a batch."""
        where = self.budget.name
        batch_contract(where, batch, self.features, self.batch_size)
        model = self._model.module(state)
        mask = batch[MASK]
        values = self._metrics(model, {name: batch[name] for name in batch if name != MASK})
        if "examples" in values:
            raise ContractError(f"{where}: the metric 'examples' is the step's own")
        sums = {"examples": jnp.sum(mask.astype(jnp.float32))}
        for name, value in values.items():
            if value.shape[:1] != mask.shape:
                raise ContractError(
                    f"{where}: a metric isn't given for each example", field=name, got=value.shape,
                    expected=f"({self.batch_size}, ...)", cure="return one value a row: the mean is taken here",
                )  # fmt: skip
            rows = mask.reshape(mask.shape + (1,) * (value.ndim - 1))
            # where() and not a product: NaN times 0 would still be NaN.
            sums[name] = jnp.sum(jnp.where(rows, value.astype(jnp.float32), 0.0), axis=0)
        return sums

    def evaluate(self, carry: Carry, batches: Iterable[Columns]) -> dict[str, Any]:
        """Means over all examples of all batches, each exactly once, equal to the last bit every time.

        Args:
            carry: Of the training; only read.
            batches: Without a mask; any may be short.

        Returns:
            float for a metric [batch], nested lists for [batch, ...]; and "examples", an int. NaN stays NaN.

        Raises:
            ContractError: There was no batch.
        """
        sums = [self(carry, self._place(pad_batch(batch, self.batch_size))) for batch in batches]
        if not sums:
            raise ContractError("there is nothing to evaluate", got="no batches")
        fetched = jax.device_get(sums)
        total = {name: _exact_sum([s[name] for s in fetched]) for name in fetched[0]}
        count = total.pop("examples")
        return {"examples": int(count), **{name: (value / count).tolist() for name, value in total.items()}}


def _exact_sum(parts: list[np.ndarray]) -> np.ndarray:
    stacked = np.stack(parts).astype(np.float64)
    flat = stacked.reshape(len(parts), -1)
    columns = [
        math.fsum(flat[:, i]) if np.isfinite(flat[:, i]).all() else flat[:, i].sum() for i in range(flat.shape[1])
    ]
    return np.array(columns).reshape(stacked.shape[1:])
