"""From a recipe to an optax optimizer: update rule, schedule, clipping, decay mask, accumulation, parameter average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import OPTIMIZERS, SCHEDULES, Recipe, check_int

MOMENTUM = 0.9
ONE_CYCLE_RISE = 0.3
SCALE = "hyperparams/step_size"
"""End of the path of the number that scales the updates, in the state of a scaled optimizer."""


def updates_of(recipe: Recipe, total_steps: int) -> int:
    """How many updates a training makes: one for every `accumulate` batches; those of an unfinished last one are lost.

    Raises:
        ParameterError: There are fewer batches than one update takes.
    """
    check_int("total_steps", total_steps, 1)
    if recipe.accumulate > total_steps:
        raise ParameterError(
            "the training has fewer batches than one update takes", parameter="accumulate", got=recipe.accumulate,
            expected=f"at most {total_steps}, the steps of the whole training",
        )  # fmt: skip
    return total_steps // recipe.accumulate


def learning_rate_at(recipe: Recipe, updates: int) -> optax.Schedule:
    """The learning rate as a function of the number of updates already made (the first update has number 0).

    - "constant": rises in a straight line from 0 to the peak during the warm-up, then stays.
    - "cosine": the same rise, then half a cosine down to 0 (or to `alpha` times the peak) after the last update
      (Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983).
    - "one-cycle": from peak / 25 up to the peak at 30 % of the updates, then down to peak / 250,000 after the last one,
      both as half a cosine (Smith & Topin 2017, https://arxiv.org/abs/1708.07120); the warm-up has no part in it.
      With fewer than four updates there is no room for a rise, and it starts at the peak.

    Raises:
        UnknownNameError: There is no such schedule.
        ParameterError: `updates` isn't a whole number above 0.
    """
    check_int("updates", updates, 1)
    peak, options = recipe.learning_rate, dict(recipe.schedule_options)
    warmup = int(recipe.warmup * updates)
    match recipe.schedule:
        case "constant":
            after = optax.constant_schedule(peak)
        case "cosine":
            after = optax.cosine_decay_schedule(peak, updates - warmup, **options)
        case "one-cycle":
            return optax.cosine_onecycle_schedule(updates, peak, **{"pct_start": ONE_CYCLE_RISE, **options})
        case name:
            raise UnknownNameError.among("schedule", name, SCHEDULES)
    if warmup == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])


def learning_rates(recipe: Recipe, total_steps: int) -> np.ndarray:
    """The schedule as a table, float32 [updates]: one look-up a step costs less than one call of a schedule."""
    updates = updates_of(recipe, total_steps)
    rates = jax.vmap(learning_rate_at(recipe, updates))(jnp.arange(updates))
    return np.broadcast_to(np.asarray(rates, np.float32), updates)


def build_optimizer(recipe: Recipe, total_steps: int, *, scaled: bool = False) -> optax.GradientTransformation:
    """The optimizer that the recipe names, with all that the recipe puts around it.

    A gradient is averaged over `accumulate` batches (optax.MultiSteps), its global norm is clipped, then the rule with
    its schedule makes an update, and the average of the parameters follows. Weight decay is decoupled (Loshchilov &
    Hutter 2019, https://arxiv.org/abs/1711.05101) and acts on kernels unless the recipe says "all". "sgd" has a
    momentum of 0.9. "muon" makes the updates of matrices orthogonal (Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon) and leaves all other arrays to Adam; its "kernels" are the matrices.

    Args:
        recipe: That names it.
        total_steps: Of the training.
        scaled: Multiplies each update by a number in the optimizer's state (`SCALE`), 1 at first. All schedules and
            rules are proportional to the peak, so a recipe with a peak of 1 and this number is the recipe with this
            peak, without being another program.

    Raises:
        UnknownNameError: There is no such optimizer or schedule.
        ParameterError: There are no steps, or fewer than one update takes.
    """
    updates = updates_of(recipe, total_steps)
    rule = _rule(recipe, learning_rate_at(recipe, updates))
    if scaled:
        rule = optax.chain(rule, optax.inject_hyperparams(optax.scale)(step_size=1.0))
    if recipe.clip_norm is not None:
        rule = optax.chain(optax.clip_by_global_norm(recipe.clip_norm), rule)
    if recipe.ema is not None:
        rule = with_average(rule, recipe.ema)
    if recipe.accumulate > 1:
        return optax.MultiSteps(rule, recipe.accumulate).gradient_transformation()
    return rule


def _rule(recipe: Recipe, rate: optax.Schedule) -> optax.GradientTransformation:
    decay, options = recipe.weight_decay, dict(recipe.optimizer_options)
    mask = is_kernel if recipe.decay == "kernels" else None
    match recipe.optimizer:
        case "adamw":
            return optax.adamw(rate, weight_decay=decay, mask=mask, **options)  # type: ignore[arg-type]
        case "lion":
            return optax.lion(rate, weight_decay=decay, mask=mask, **options)  # type: ignore[arg-type]
        case "muon":
            others = decay if recipe.decay == "all" else 0.0
            return optax.contrib.muon(rate, weight_decay=decay, adam_weight_decay=others, **options)  # type: ignore
        case "adam":
            return optax.adam(rate, **options)  # type: ignore[arg-type]
        case "sgd":
            return optax.sgd(rate, options.get("momentum", MOMENTUM))
        case name:
            raise UnknownNameError.among("optimizer", name, OPTIMIZERS)


def is_kernel(parameters: Any) -> Any:  # noqa: ANN401 - any tree of arrays
    """The same tree with True for kernels (two axes or more), False for biases and BatchNorm scales."""
    return jax.tree.map(lambda leaf: leaf.ndim >= 2, parameters)


class Averaged(NamedTuple):
    """State of `with_average`.

    Attributes:
        inner: State of the rule.
        updates: int32 []: updates so far.
        average: A tree like the parameters.
    """

    inner: Any
    updates: jax.Array
    average: Any


def with_average(rule: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """A rule that also keeps an exponential moving average of the parameters, as they are after each update.

    The first updates weigh more, min(decay, (1 + n) / (10 + n)) after n updates (as TensorFlow's
    ExponentialMovingAverage does), or the random first weights would stay in the average of a short training. It is
    part of the optimizer's state, so checkpoints, skipped batches and accumulation treat it as they treat the rest.
    """
    rule = optax.with_extra_args_support(rule)

    def init(params: Any) -> Averaged:  # noqa: ANN401
        return Averaged(rule.init(params), jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Averaged]:  # noqa: ANN401
        changes, inner = rule.update(updates, state.inner, params, **extra)
        n = state.updates.astype(jnp.float32)
        kept = jnp.minimum(decay, (1 + n) / (10 + n))
        new = optax.apply_updates(params, changes)
        average = jax.tree.map(lambda old, now: (kept * old + (1 - kept) * now).astype(old.dtype), state.average, new)
        return changes, Averaged(inner, state.updates + 1, average)

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(optimizer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The average of the parameters inside of a carry's optimizer state, as nested dicts; None if there is none."""
    state = optimizer["opt_state"]
    state = state.get("inner_opt_state", state) if isinstance(state, Mapping) else state
    return state.get("average") if isinstance(state, Mapping) else None
