"""From a recipe to an optax optimizer: update rule, learning-rate schedule, clipping, decay of kernels only."""

from __future__ import annotations

from typing import Any

import jax
import optax

from datasets.errors import UnknownNameError
from datasets.schema import Recipe, check_int

OPTIMIZERS = ("adam", "adamw", "lion", "sgd")
SCHEDULES = ("constant", "cosine", "one-cycle")
MOMENTUM = 0.9
ONE_CYCLE_RISE = 0.3


def learning_rate_at(recipe: Recipe, total_steps: int) -> optax.Schedule:
    """The learning rate as a function of the number of updates already made (the first update has step 0).

    - "constant": rises in a straight line from 0 to the peak during the warm-up, then stays.
    - "cosine": the same rise, then half a cosine down to 0 at `total_steps`, one step past the last update
      (Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983).
    - "one-cycle": from peak / 25 up to the peak at 30 % of the steps, then down to peak / 250,000 at `total_steps`,
      both as half a cosine (Smith & Topin 2017, https://arxiv.org/abs/1708.07120); the warm-up has no part in it.
      With fewer than four steps there is no room for a rise, and it starts at the peak.

    Raises:
        UnknownNameError: There is no such schedule.
        ParameterError: `total_steps` isn't a whole number above 0.
    """
    check_int("total_steps", total_steps, 1)
    peak = recipe.learning_rate
    warmup_steps = int(recipe.warmup * total_steps)
    match recipe.schedule:
        case "constant":
            after = optax.constant_schedule(peak)
        case "cosine":
            after = optax.cosine_decay_schedule(peak, total_steps - warmup_steps)
        case "one-cycle":
            return optax.cosine_onecycle_schedule(total_steps, peak, pct_start=ONE_CYCLE_RISE)
        case name:
            raise UnknownNameError.among("schedule", name, SCHEDULES)
    if warmup_steps == 0:
        return after
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), after], [warmup_steps])


def build_optimizer(recipe: Recipe, total_steps: int) -> optax.GradientTransformation:
    """The optimizer that the recipe names, with its schedule, after clipping of the gradient's global norm.

    "sgd" has a momentum of 0.9. Weight decay is decoupled (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101),
    belongs to "adamw" and "lion", and acts on kernels only.

    Raises:
        UnknownNameError: There is no such optimizer or schedule.
        ParameterError: `total_steps` isn't a whole number above 0.
    """
    rate = learning_rate_at(recipe, total_steps)
    match recipe.optimizer:
        case "adamw":
            rule = optax.adamw(rate, weight_decay=recipe.weight_decay, mask=is_kernel)
        case "lion":
            rule = optax.lion(rate, weight_decay=recipe.weight_decay, mask=is_kernel)
        case "adam":
            rule = optax.adam(rate)
        case "sgd":
            rule = optax.sgd(rate, momentum=MOMENTUM)
        case name:
            raise UnknownNameError.among("optimizer", name, OPTIMIZERS)
    if recipe.clip_norm is None:
        return rule
    return optax.chain(optax.clip_by_global_norm(recipe.clip_norm), rule)


def is_kernel(parameters: Any) -> Any:  # noqa: ANN401 - any tree of arrays
    """The same tree with True for kernels (two axes or more), False for biases and BatchNorm scales."""
    return jax.tree.map(lambda leaf: leaf.ndim >= 2, parameters)
