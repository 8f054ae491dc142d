"""Stages `pilot` and `together`: whether members of a sweep should be one program, and what they come to as one.

What the program gives is a ranking: the metric of each member on the split that recipes are chosen on. Its weights
aren't kept, because it may round in another way than a single training, and `flows.train` promises the same bits as
ever. Whoever is chosen is trained by stage `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.schema import Recipe
from tasks.artifact import Artifact, Draft
from tasks.choose import metric_of, validation_split
from tasks.durable import write_json
from tasks.feed import check_vouched, chosen_setting, machine
from tasks.fit import model_code, reads
from tasks.progress import LOG
from tasks.recipe_changes import common_recipe
from tasks.stage import Job, Run, Stage

if TYPE_CHECKING:
    from tasks.members import Members
    from tasks.vmapped import VmappedStep

MEMBERS = "members.json"
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn", "scipy")


def rank_members(
    job: Job, records: Artifact, report: Artifact, plan: Artifact, transforms: Artifact | None = None
) -> Artifact:
    """`members.json`: for each recipe of `job.request.members` its score, or why it has none.

    Raises:
        StoreError: The report vouches for other records than these.
        TraceBudgetExceeded: A step needed another trace.
        CheckpointError: A checkpoint can't be written or read.
        TrainingError: It was stopped by a signal.
    """
    from tasks.compiled import use_compilation_cache
    from tasks.members import Members

    check_vouched(job.store, records, report)
    job.store.verify(records)
    use_compilation_cache(job.store.root)
    folder = job.store.root / "checkpoints" / job.request.name / job.key
    if job.anew:
        job.store.discard(folder)
    rows: list[dict[str, Any]] = []
    programs = []
    build, total = _builder(job, records)
    for step in fitting(job.request.members, _limit(job), build):
        own = folder / f"{len(rows)}-{len(rows) + len(step.members)}"
        members = Members(job, records, chosen_setting(job.store, plan), own, step, total)
        rows += _rows(members)
        programs.append({
            "members": len(step.members), "memory": step.memory, "seconds": members.seconds,
            "resumed_from": members.resumed_from, "compiled_s": step.budget.seconds,
            **{name: value for name, value in step.report().items() if name != "seconds"},
        })  # fmt: skip
    job.notes.update(programs=programs, resumed_from=programs[0]["resumed_from"])

    def fill(draft: Draft) -> None:
        write_json(draft.folder / MEMBERS, rows)
        draft.facts = {"records": records.digest, "members": len(rows), "failed": sum("failed" in row for row in rows)}

    made = job.commit("members", fill)
    job.store.discard(folder)  # nobody goes on from weights that aren't kept
    return made


def _rows(members: Members) -> Iterator[dict[str, Any]]:
    """Trains one program's members; what each of them came to."""
    carry = members.run()
    dataset = members.job.request.dataset
    failed = members.failures(carry)
    found = members.predictions(carry, validation_split(dataset) or "test")
    for at, (recipe, answers) in enumerate(zip(members.step.members, found, strict=True)):
        if at not in failed and not (np.isfinite(answers.logits).all() and np.isfinite(answers.losses).all()):
            failed[at] = "the model gives a logit or a loss that isn't finite"
        row = {"learning_rate": recipe.learning_rate, "seed": recipe.seed}
        yield row | ({"failed": failed[at]} if at in failed else {"score": metric_of(dataset, answers)})


def fitting(
    members: Sequence[Recipe], limit: int, build: Callable[[Sequence[Recipe]], VmappedStep]
) -> Iterator[VmappedStep]:  # fmt: skip
    """One program for all members if it fits memory, else several of about equal size, one after the other.

    Args:
        members: Recipes.
        limit: Bytes that a program may take.
        build: Compiles the program of some members.
    """
    step = build(members)
    if step.memory <= limit or len(members) == 1:
        if step.memory > limit:
            LOG.warning("one member alone takes %.2f GB, more than the %.2f GB allowed", step.memory / 1e9, limit / 1e9)
        yield step
        return
    parts = min(len(members), math.ceil(step.memory / max(limit, 1)))
    LOG.info(
        "%d members as one program would take %.2f GB, more than the %.2f GB allowed: they are split in %d",
        len(members), step.memory / 1e9, limit / 1e9, parts,
    )  # fmt: skip
    del step  # before the next one is made
    for places in np.array_split(np.arange(len(members)), parts):
        yield from fitting([members[at] for at in places], limit, build)


def compare_ways(
    job: Job, records: Artifact, report: Artifact, plan: Artifact, transforms: Artifact | None = None
) -> Artifact:
    """Times a few steps of the members as one program and of one member alone; the artifact's facts say what is faster.

    Raises:
        StoreError: The report vouches for other records than these.
        TraceBudgetExceeded: A step needed another trace.
    """
    from tasks.compiled import use_compilation_cache
    from tasks.pilot import verdict

    check_vouched(job.store, records, report)
    use_compilation_cache(job.store.root)
    build, total = _builder(job, records)
    facts = verdict(job, records, next(fitting(job.request.members, _limit(job), build)), total)

    def fill(draft: Draft) -> None:
        draft.facts = facts

    return job.commit("pilot", fill)


def _builder(job: Job, records: Artifact) -> tuple[Callable[[Sequence[Recipe]], VmappedStep], int]:
    """What compiles the program of some members, and the steps of their training."""
    from tasks.feed import train_order
    from tasks.objective import weights_of_classes
    from tasks.vmapped import VmappedStep

    dataset = job.request.dataset
    total = train_order(job.store, job.request, records).total_steps(dataset.recipe.epochs)
    weights = weights_of_classes(job.store, job.request, records)
    return lambda members: VmappedStep(dataset, members, total, weights), total


def _limit(job: Job) -> int:
    from tasks.free_memory import allowed

    return allowed() if job.request.memory is None else job.request.memory


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {
        **reads(run), "recipe": common_recipe(dataset.recipe),
        "members": [{"learning_rate": recipe.learning_rate, "seed": recipe.seed} for recipe in run.request.members],
        "split": validation_split(dataset) or "test", "metric": dataset.gate.metric,
    }  # fmt: skip


def _reads_here(run: Run) -> dict[str, Any]:
    """A measurement: of this machine, and of how many members, whichever they are."""
    shared = {name: value for name, value in _reads(run).items() if name not in ("members", "split", "metric")}
    recipes = run.request.members
    rates = len({recipe.learning_rate for recipe in recipes})
    return {**shared, "members": len(recipes), "rates": rates, "memory": run.request.memory, "machine": machine()}


# Not exact: where memory is short they are split, and another number of members may round in another way.
together = Stage(
    "together", rank_members, _reads, libraries=LIBRARIES, advisory=frozenset({"report", "plan"}), code=model_code,
    exact=False,
)  # fmt: skip
pilot = Stage(
    "pilot", compare_ways, _reads_here, libraries=LIBRARIES, advisory=frozenset({"report", "plan"}), code=model_code,
    exact=False,
)  # fmt: skip
