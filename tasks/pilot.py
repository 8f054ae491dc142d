"""Are members faster as one program, or one after the other? A few steps of each, measured in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from tasks.artifact import Artifact
from tasks.members import Stacked
from tasks.objective import Objective
from tasks.stage import Job
from tasks.vmapped import VmappedStep

SECONDS = 3.0
MOST_ROUNDS = 20


def verdict(job: Job, records: Artifact, step: VmappedStep, total: int) -> dict[str, Any]:
    """Which way takes less time, as JSON: steps and compilations; stages after `fit` would only add to the other way.

    Args:
        job: Whose request has the members.
        records: The shards.
        step: Of all members, or of the first part.
        total: Steps of the training.
    """
    members = job.request.members
    single = Objective(replace(job.request.dataset, recipe=members[0]), step.objective.weights).train_step(total)
    batches = Stacked.of(job, records, step.members)
    alone_batches = batches.pipelines[members[0].seed]
    many_ms, one_ms = in_turns(_runner(step, batches.batch), _runner(single, alone_batches.batch))
    rates, parts = len({recipe.learning_rate for recipe in members}), math.ceil(len(members) / len(step.members))
    compile_one, compile_many = single.budget.seconds, step.budget.seconds
    one, many = (compile_one, total * one_ms / 1000), (compile_many, total * many_ms / 1000)
    alone, together = both_ways(len(members), rates, parts, one=one, many=many)
    return {
        "members": len(members), "programs": parts, "steps": total, "step_ms": many_ms, "single_step_ms": one_ms,
        "compile_s": compile_many, "single_compile_s": compile_one, "together_s": together, "one_by_one_s": alone,
        "together": together < alone,
    }  # fmt: skip


def both_ways(
    members: int, rates: int, parts: int, *, one: tuple[float, float], many: tuple[float, float]
) -> tuple[float, float]:  # fmt: skip
    """Seconds that members take one after the other, and as one program.

    One after the other, each member's steps and a program for each learning rate. As one program, its steps (of each
    part, where memory splits it), its compilation, and then the winner's training, for which all of this is a ranking.

    Args:
        members: How many.
        rates: Learning rates among them.
        parts: Programs that memory splits them into.
        one: Seconds to compile, and of all steps, of one member by itself.
        many: The same of a program of members.
    """
    return rates * one[0] + members * one[1], parts * sum(many) + sum(one)


def said(facts: dict[str, Any]) -> str:
    """The verdict in a sentence."""
    return (
        f"a step of all takes {facts['step_ms']:.2f} ms, of one {facts['single_step_ms']:.2f} ms; with compilation,"
        f" {facts['steps']:,} steps and the winner's training, one program takes {facts['together_s']:.1f} s, one after"
        f" the other {facts['one_by_one_s']:.1f} s"
    )


def in_turns(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """The median milliseconds of two things that are done in turns, so that what disturbs one disturbs both."""
    first()
    second()
    began, times = time.perf_counter(), []
    while not times or (time.perf_counter() - began < SECONDS and len(times) < MOST_ROUNDS):
        times.append((first(), second()))
    one, other = np.median(times, axis=0).tolist()
    return one * 1000, other * 1000


def _runner(step: Any, batch: Callable[[int], Any]) -> Callable[[], float]:  # noqa: ANN401 - either step
    """Does the next step of a training, batch included, and gives its seconds."""
    carry, done = step.initial_carry(), 0

    def run() -> float:
        nonlocal carry, done
        started = time.perf_counter()
        carry, _ = step(carry, batch(done))
        jax.block_until_ready(carry)
        done += 1
        return time.perf_counter() - started

    return run
