"""The guarded training step: compiled once from the schema, refuses what doesn't fit, never applies a bad gradient.

What is carried from step to step is a tree of plain arrays, donated to the next step. A bad batch (its loss or a
gradient isn't finite) leaves model, optimizer, BatchNorm statistics and random state bitwise what they were before it,
and trips a latch: every later step then does nothing, so that the host may look only every k steps and still holds the
state of before the bad batch, although the arrays that went in are gone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Feature, in_batches
from tasks.autopsy import differ, signature
from tasks.budget import TraceBudget
from tasks.carry import Carry, Policy, advanced, fresh_carry
from tasks.contracts import array_contract, batch_contract, device_dtype, surfacing
from tasks.leaves import local, put
from tasks.plain_state import PlainState, plain
from tasks.step_metrics import Layout, StepMetrics, layout_of, pack

Batch = Mapping[str, Any]
LossFn = Callable[[Any, Batch], tuple[jax.Array, dict[str, jax.Array]]]
"""From a model in train mode and a batch to the mean loss, float [], and metrics by name."""

METRICS = ("loss", "grad_norm", "grad_sq", "applied")
"""Names that the step itself gives; a loss may not give metrics of these names."""


class TrainStep:
    """A training step that is compiled when it is made and can't be compiled again.

    Attributes:
        budget: Its traces and compilations, and whether the program came from the persistent cache.
        policy: What a bad batch does.
        features: Columns of a batch.
        batch_size: Rows of a batch.
        gradient_leaves: Paths of the parameters, in the order of the metric `grad_sq`.
        sharding: Where the carry is; a restored carry must be put there before its first step.
    """

    def __init__(
        self,
        model: nnx.Module,
        tx: optax.GradientTransformation,
        loss_fn: LossFn,
        features: Mapping[str, Feature],
        batch_size: int,
        *,
        policy: Policy | None = None,
        budget: int = 1,
        name: str = "train_step",
        sharding: jax.sharding.Sharding | None = None,
        batch_sharding: jax.sharding.Sharding | None = None,
    ) -> None:
        """Traces and compiles; touches neither `model` nor any data.

        Args:
            model: Start of the training; copied, and the copy set to train mode.
            tx: Optimizer with its schedule and clipping.
            loss_fn: From a model and a batch to (loss, metrics).
            features: Columns of a batch.
            batch_size: Rows of a batch.
            policy: Stop at the first bad batch if None.
            budget: Traces allowed.
            name: Of the program.
            sharding: Of the carry; the first device if None.
            batch_sharding: Of the batch; left open if None.

        Raises:
            ContractError: Model or loss break a contract while they are traced.
            TraceBudgetExceeded: The budget is spent.
        """
        self.policy = policy or Policy()
        self.features = dict(features)
        self.batch_size = batch_size
        self.sharding = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        self.budget = TraceBudget(name, budget)
        self._loss_fn = surfacing(name, loss_fn)
        self._model, self._optimizer, self._initial = beginning_of(model, tx)
        self.gradient_leaves = leaf_paths(plain(nnx.state(model, nnx.Param)))
        if not self.gradient_leaves:
            raise ContractError(f"{name}: the model has no parameters", got=type(model).__name__)
        self._expected = (self.abstract_carry(), self.abstract_batch(batch_sharding))
        self._layout: Layout = {}
        self._compiled = self.budget.compile(
            self._packed, *self._expected, donate_argnums=0, out_shardings=self.sharding
        )

    def __call__(self, carry: Carry, batch: Batch) -> tuple[Carry, StepMetrics]:
        """One batch. `carry` is used up; the metrics stay on the device until one is asked for.

        Returns:
            The new carry, and metrics: loss float32 []; grad_norm float32 []; grad_sq float32 [parameters' leaves],
            the squared norm of each; applied bool [], False if the batch changed nothing (leave it out of averages);
            and those of the loss function.

        Raises:
            TraceBudgetExceeded: The batch or the carry isn't what the step was compiled for; nothing has run.
            ContractError: The carry was given to a step before.
        """
        try:
            carried, packed = self._compiled(carry, batch)
        except (TypeError, ValueError, RuntimeError) as error:
            refused = refusal(self.budget, inspect.signature(self.function), self._expected, (carry, batch))
            if refused is None:
                raise
            raise refused from error
        return carried, StepMetrics(packed, self._layout)

    def _packed(self, carry: Carry, batch: Batch) -> tuple[Carry, jax.Array]:
        new, metrics = self.function(carry, batch)
        self._layout = layout_of(metrics)
        return new, pack(metrics)

    def function(self, carry: Carry, batch: Batch) -> tuple[Carry, dict[str, jax.Array]]:
        """The step as a plain function of arrays, each metric an array of its own: what a debugger runs."""
        where = self.budget.name
        batch_contract(where, batch, self.features, self.batch_size)
        loss, aux, grads, moved = self.gradients(carry, batch)
        # An overflow of the sum counts as bad on purpose, although each entry may be finite (norms above 1.8e19): the
        # second moment of Adam squares the same numbers and would be infinite for good.
        grad_sq = jnp.stack([jnp.sum(g * g) for g in _float32_leaves(grads)])
        finite = jnp.isfinite(loss) & jnp.all(jnp.isfinite(grad_sq))
        live = carry.tripped_at < 0
        healthy = live & finite

        def apply() -> dict[str, Any]:
            model, optimizer = self._model.module(moved), self._optimizer.module(carry.state["optimizer"])
            optimizer.update(model, grads)
            new = {"model": plain(nnx.state(model)), "optimizer": plain(nnx.state(optimizer))}
            _same_types(f"{where}: the update", carry.state, new)
            return new

        # The forward pass moved BatchNorm and random state already, so a bad batch takes all of the old state back.
        state = jax.lax.cond(healthy, apply, lambda: carry.state)
        new = advanced(carry, state, healthy, bad=live & ~finite, policy=self.policy)
        own = {"loss": loss, "grad_norm": jnp.sqrt(grad_sq.sum()), "grad_sq": grad_sq, "applied": healthy}
        return new, {**own, **aux}

    def gradients(self, carry: Carry, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array], Any, dict[str, Any]]:
        """Loss, metrics, gradients, and the model's state after the forward pass; updates nothing.

        Raises:
            ContractError: The loss function gives something else than (scalar float loss, dict of arrays).
        """
        where = self.budget.name
        model = self._model.module(carry.state["model"])

        def checked_loss(model: nnx.Module, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
            out = self._loss_fn(model, batch)
            if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict)):
                raise ContractError(f"{where}: the loss function gives {type(out).__name__}", expected="(loss, dict)")
            loss, aux = out
            array_contract(where, "loss", loss, ())
            if not jnp.issubdtype(loss.dtype, jnp.floating):
                raise ContractError(f"{where}: the loss isn't a float", field="loss", got=loss.dtype.name)
            if taken := sorted(set(aux) & set(METRICS)):
                raise ContractError(f"{where}: these metrics are the step's own", got=", ".join(taken))
            _numbers(where, aux)
            return loss.astype(jnp.float32), aux

        (loss, aux), grads = nnx.value_and_grad(checked_loss, has_aux=True)(model, batch)
        moved = plain(nnx.state(model))
        _same_types(f"{where}: the forward pass", carry.state["model"], moved)
        return loss, aux, grads, moved

    def abstract_carry(self) -> Carry:
        """Shapes, dtypes and sharding of a carry: what a checkpoint is restored to."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.sharding), self._initial
        )  # fmt: skip

    def abstract_batch(self, sharding: jax.sharding.Sharding | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes, dtypes and sharding of a batch."""
        return abstract_batch(self.features, self.batch_size, sharding)

    def initial_carry(self) -> Carry:
        """A new carry at step 0, in its place on the device; each call gives its own copy."""
        return self.place(self._initial)

    def place(self, carry: Carry) -> Carry:
        """Copies a carry to where the step expects it; needed once for one that comes from elsewhere."""
        # device_put alone shares memory where it can (over several devices in spite of may_alias=False), and then the
        # first step would eat its source too.
        return jax.tree.map(lambda x: put(jnp.copy(x), self.sharding), carry)

    def model(self, carry: Carry) -> Any:  # noqa: ANN401 - the class of the model that came in
        """A copy of the model at this point, in eval mode."""
        model = self._model.module(jax.tree.map(lambda x: jnp.copy(local(x)), carry.state["model"]))
        model.eval()
        return model

    def poisoned(self, carry: Carry) -> list[str]:
        """Paths of the state's leaves that hold NaN or an infinity: must be empty before a carry is saved.

        The latch guards loss and gradients. An optimizer can still make NaN of finite gradients (a schedule that
        divides by zero), which this finds.
        """
        sound = np.asarray(finite_leaves(jax.tree.map(local, carry.state)))
        if sound.all():  # the paths alone take longer than the look
            return []
        return [path for path, fine in zip(leaf_paths(carry.state), sound, strict=True) if not fine]

    def report(self) -> dict[str, Any]:
        """JSON for the run's page: the budget's, and FLOPs of a step as XLA counts them."""
        cost = self._compiled.cost_analysis() or {}
        return {**self.budget.report(), "flops": cost.get("flops")}


def _numbers(where: str, metrics: Mapping[str, Any]) -> None:
    """Raises ContractError if a metric isn't an array of numbers or truth values."""
    for name, value in metrics.items():
        if not isinstance(value, jax.Array) or not (
            jnp.issubdtype(value.dtype, jnp.number) or jnp.issubdtype(value.dtype, jnp.bool_)
        ):
            raise ContractError(
                f"{where}: a metric of the loss function isn't an array of numbers", field=str(name),
                got=str(value.dtype) if isinstance(value, jax.Array) else type(value).__name__,
                cure="jnp.asarray(value) of a number; leave out what isn't one",
            )  # fmt: skip


def _same_types(what: str, old: Any, new: Any) -> None:  # noqa: ANN401
    """Raises ContractError if a state's arrays came, went, or got another shape or dtype."""
    before, after = (
        {path: f"{x.dtype}{list(x.shape)}" for path, x in zip(leaf_paths(tree), jax.tree.leaves(tree), strict=True)}
        for tree in (old, new)
    )
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            raise ContractError(
                f"{what} changes the state's arrays", field=path, got=after.get(path, "absent"),
                expected=before.get(path, "absent"), cure="keep dtypes through the step; nnx.pop what a layer sows",
            )  # fmt: skip


def beginning_of(model: nnx.Module, tx: optax.GradientTransformation) -> tuple[PlainState, PlainState, Carry]:
    """A copy of the model in train mode and its optimizer as plain states, and the carry at step 0."""
    model = nnx.clone(model)
    model.train()
    states = PlainState(model), PlainState(nnx.Optimizer(model, tx, wrt=nnx.Param))
    return *states, fresh_carry({"model": states[0].arrays, "optimizer": states[1].arrays})


@jax.jit
def finite_leaves(state: Any) -> jax.Array:  # noqa: ANN401
    """One bool for each leaf of a state; True for whole numbers and random keys."""
    floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(state)]
    return jnp.stack(
        [jnp.isfinite(x).all() if f else jnp.bool_(True) for x, f in zip(jax.tree.leaves(state), floats, strict=True)]
    )


def _float32_leaves(grads: Any) -> list[jax.Array]:  # noqa: ANN401
    return [g.astype(jnp.float32) for g in jax.tree.leaves(nnx.as_pure(grads))]


def leaf_paths(tree: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Path of each leaf, such as "model/dense/kernel", in the order of `jax.tree.leaves`."""
    return tuple(jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in jax.tree.leaves_with_path(tree))


def abstract_batch(
    features: Mapping[str, Feature], batch_size: int, sharding: jax.sharding.Sharding | None = None
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a batch on the device."""
    return {
        name: jax.ShapeDtypeStruct((batch_size, *f.shape), device_dtype(f.dtype), sharding=sharding)
        for name, f in in_batches(features).items()
    }


def refusal(
    budget: TraceBudget, parameters: inspect.Signature, expected: tuple[Any, ...], got: tuple[Any, ...]
) -> Exception | None:
    """The error to show if a compiled program refused its arguments; None if the cause is another."""
    used_up = [x for x in jax.tree.leaves(got) if isinstance(x, jax.Array) and x.is_deleted()]
    if used_up:
        return ContractError(
            f"{budget.name}: an array of an earlier step is given again", got=f"{len(used_up)} deleted arrays",
            cure="go on with the carry that the last step returned: the one that went in is used up",
        )  # fmt: skip
    before, after = (signature(parameters, arguments, {}, on_host=True) for arguments in (expected, got))
    return budget.refused(before, after) if differ(before, after) else None
