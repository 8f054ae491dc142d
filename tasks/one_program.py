"""Which members of a sweep are ranked as one program, and whether that is done; nothing is decided without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datasets.errors import UnknownNameError
from datasets.schema import Recipe, check_int
from tasks.artifact import Artifact
from tasks.durable import read_json
from tasks.fingerprint import Sources
from tasks.progress import LOG
from tasks.recipe_changes import common_recipe
from tasks.request import Request
from tasks.stage import Outcome, Run
from tasks.sweep_member import Member
from tasks.together import MEMBERS, pilot, together

WAYS = ("pilot", "together", "one-by-one")
Asked = tuple[Mapping[str, Any], list[Request]]
"""The changes that make a recipe, and the requests of its members."""


@dataclass(frozen=True)
class Ranked:
    """What members came to as one program.

    Attributes:
        rows: One for each: its learning rate and seed, and its score or why it failed.
        seconds: That the stage took.
        cached: Whether it was in the cache.
    """

    rows: list[dict[str, Any]]
    seconds: float
    cached: bool

    def part(self, start: int, count: int) -> Ranked:
        """Some of the members, with their share of the time."""
        share = self.seconds * count / max(1, len(self.rows))
        return Ranked(self.rows[start : start + count], share, self.cached)


class Ranking:
    """Ranks members as one program where that is asked for, or where a pilot finds that it takes less time.

    Args:
        ready: Takes a run through all stages before `fit`, and gives what that takes.
        way: One of WAYS.
        memory: Bytes that a program may take; None for half of what is free.

    Attributes:
        groups: For each group of members: how many, whether they were one program, and why.
    """

    def __init__(
        self, ready: Callable[[Run], dict[str, Artifact]], way: str = "pilot", memory: int | None = None
    ) -> None:  # fmt: skip
        if way not in WAYS:
            raise UnknownNameError.among("way to rank members", way, WAYS)
        if memory is not None:
            check_int("memory", memory, 1)
        self.ready, self.way, self.memory = ready, way, memory
        self.groups: list[dict[str, Any]] = []

    def __call__(self, requests: Sequence[Request], sources: Sources, done: dict[str, Outcome]) -> Ranked | None:
        """Ranks members that may be one program; None if each is to be trained by itself.

        Args:
            requests: Theirs.
            sources: The code.
            done: As `Member.done`.
        """
        if (obstacle := self._obstacle(requests)) is not None:
            return self._alone(requests, obstacle)
        recipes = tuple(request.dataset.recipe for request in requests)
        run = Member(replace(requests[0], members=recipes, memory=self.memory), sources=sources, done=done)
        inputs = self.ready(run)
        why = "as asked"
        if self.way == "pilot":
            from tasks.pilot import said

            facts = run.store.facts(pilot(run, **inputs))
            why = said(facts)
            if not facts["together"]:
                return self._alone(requests, why)
        LOG.info("%d members of %s are one program (%s)", len(recipes), recipes[0].model, why)
        made = together(run, **inputs)
        outcome = run.outcomes[-1]
        self.groups.append({"members": len(recipes), "together": True, "why": why, "state": outcome.state,
                            "seconds": outcome.seconds, "programs": outcome.notes["programs"]})  # fmt: skip
        return Ranked(read_json(run.store.path(made) / MEMBERS), outcome.seconds, outcome.state == "cached")

    def _obstacle(self, requests: Sequence[Request]) -> str | None:
        if self.way == "one-by-one":
            return "as asked"
        if len(requests) == 1:
            return "there is only one"
        if requests[0].dataset.recipe.early_stopping is not None:
            return "early stopping ends each at a step of its own"
        return None

    def _alone(self, requests: Sequence[Request], why: str) -> None:
        LOG.info("%d members of %s, one after the other: %s", len(requests), requests[0].dataset.recipe.model, why)
        self.groups.append({"members": len(requests), "together": False, "why": why})


def groups(asked: Iterable[Asked]) -> list[list[Asked]]:
    """Recipes that differ in nothing but what the members of one program may differ in, in the order of the first."""
    found: list[tuple[Recipe, list[Asked]]] = []
    for changes, requests in asked:
        common = common_recipe(requests[0].dataset.recipe)
        own = next((group for recipe, group in found if recipe == common), None)
        if own is None:
            found.append((common, own := []))
        own.append((changes, requests))
    return [group for _, group in found]
