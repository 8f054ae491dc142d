"""What a training carries from step to step, and what a bad batch does to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from datasets.schema import check_int


@dataclass(frozen=True)
class Policy:
    """What a bad batch does.

    To skip leaves the batch out: model, optimizer (with its count, so the schedule stands still too), BatchNorm
    statistics and random state are bitwise those of a run that never saw it. One skip more than a limit allows trips
    the latch, as the first bad batch does when there are no skips. Nothing ever applies a bad gradient.

    Attributes:
        skip: False to stop at the first bad batch.
        max_consecutive: Skips in a row that are allowed.
        max_total: Skips in a whole run that are allowed.
    """

    skip: bool = False
    max_consecutive: int = 3
    max_total: int = 20

    def __post_init__(self) -> None:
        check_int("max_consecutive", self.max_consecutive, 1)
        check_int("max_total", self.max_total, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Carry:
    """All that a training is, as one tree of arrays; give it to the step and use only what comes back.

    Attributes:
        state: {"model": ..., "optimizer": ...}, nested dicts of plain arrays.
        step: int32 []: batches consumed, which is the index of the next batch; the position in the data.
        skipped: int32 []: batches that were left out; step - skipped updates have been applied, which is what the
            optimizer counts and its schedule reads.
        streak: int32 []: batches left out in a row just now.
        tripped_at: int32 []: -1, or the index of the batch at which the latch tripped; `step` then stays there.
    """

    state: dict[str, Any]
    step: jax.Array
    skipped: jax.Array
    streak: jax.Array
    tripped_at: jax.Array


def fresh_carry(state: dict[str, Any]) -> Carry:
    """The carry at step 0."""
    zero = np.int32(0)
    return jax.tree.map(jnp.asarray, Carry(state, zero, zero, zero, np.int32(-1)))  # type: ignore[arg-type]


def advanced(carry: Carry, state: dict[str, Any], healthy: jax.Array, *, bad: jax.Array, policy: Policy) -> Carry:
    """The carry after a batch.

    Args:
        carry: Before it.
        state: After it.
        healthy: bool []: it was applied.
        bad: bool []: it wasn't finite; neither is so once the latch has tripped.
        policy: What happens then.
    """
    may_skip = (carry.streak < policy.max_consecutive) & (carry.skipped < policy.max_total) & policy.skip
    skip = bad & may_skip
    return Carry(
        state=state,
        step=carry.step + (healthy | skip),
        skipped=carry.skipped + skip,
        streak=jnp.where(healthy, 0, carry.streak + skip),
        tripped_at=jnp.where(bad & ~may_skip, carry.step, carry.tripped_at),
    )
