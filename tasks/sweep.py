"""Recipes held against each other: each has several seeds, and the best by its mean goes to the gate.

Members, a recipe with a seed each, are ranked in one of two ways. One after the other, each is an ordinary training
with the keys of `flows.train`: what is done is in the cache, before the sweep, after a kill, and for whoever asks for
the same training later. As one program (`together.py`) they are only ranked, and then the winner is trained like that.
All share every stage before `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from datasets.errors import NonFiniteError, TrainingError
from datasets.gate import LOWER_IS_BETTER
from datasets.schema import check_int
from tasks.artifact import Artifact
from tasks.choose import choose, validation_split
from tasks.decision import shown
from tasks.fingerprint import Sources
from tasks.intervals import CONFIDENCE
from tasks.one_program import Ranked, Ranking, groups
from tasks.progress import LOG
from tasks.request import Request, check
from tasks.run_record import write_run
from tasks.stage import Outcome, Run
from tasks.summary import summarise
from tasks.sweep_member import Member, Trained
from tasks.sweep_table import said

UNSEEN = "the recipe was chosen on the {} split; the test split had no say"
SEEN = (
    "the dataset has no split named validation or val, so the recipe was chosen on the test split: its figures are "
    "optimistic; the weights that went to the gate are those of the first seed, not of the best"
)


class Sweep:
    """One sweep over a dataset.

    Args:
        base: The request that all members change, raw files known.
        seeds: How many trainings each recipe gets: with the seed of `base` and those after it.
        train: Takes a run through all stages but the gate, and gives what the gate needs.
        name: Of the flow run; members' records are named after it.
        sources: The code, for the keys.
        ranking: Ranks members as one program where it should; None trains each by itself.
        confirm: Whether a recipe that won as part of a program is trained with every seed, not only with one.

    Attributes:
        rows: A row for each recipe, in the order in which they were measured.
        metric: The gate's, by which recipes are chosen.
        split: On which.
        lower: Whether less of the metric is better.
    """

    def __init__(
        self, base: Request, seeds: int, train: Callable[[Run], dict[str, Artifact]], name: str,
        sources: Sources | None = None, ranking: Ranking | None = None, *, confirm: bool = False,
    ) -> None:  # fmt: skip
        check_int("seeds", seeds, 1)
        self.base, self.train, self.name = base, train, name
        self.seeds = [base.dataset.recipe.seed + i for i in range(seeds)]
        self.metric = base.dataset.gate.metric
        self.lower = self.metric in LOWER_IS_BETTER
        self.split = validation_split(base.dataset) or "test"
        self.rows: list[dict[str, Any]] = []
        self._trained: list[list[Trained]] = []
        self._sources = sources or Sources()
        self._done: dict[str, Outcome] = {}
        self._ranking, self._confirm = ranking, confirm

    def requests(self, changes: Mapping[str, Any]) -> list[Request]:
        """The requests of a recipe's members, one a seed; all is checked here, before anything is trained.

        Raises:
            UsageError: A value can't work.
        """
        made = []
        for seed in self.seeds:
            recipe = {**self.base.changed, **changes, "seed": seed}
            checked = check(self.base.name, store=self.base.store, raw=self.base.raw, recipe=recipe)
            dataset = replace(self.base.dataset, recipe=checked.dataset.recipe)
            made.append(replace(self.base, dataset=dataset, changed=checked.changed))
        return made

    def measure(self, changes: Mapping[str, Any]) -> float | None:
        """The mean of a recipe's scores; None if a member failed. See `measure_all`."""
        self.measure_all([changes])
        return next(row["mean"] for row in self.rows if row["changes"] == changes)

    def measure_all(self, recipes: Sequence[Mapping[str, Any]]) -> None:
        """Makes a row for each recipe that has none yet: all of its seeds, as one program with others or by themselves.

        A training whose loss isn't finite is a result: that recipe can't be chosen. Every other error ends the sweep.
        """
        known = [row["changes"] for row in self.rows]
        new = [(changes, self.requests(changes)) for changes in recipes if changes not in known]
        for group in groups(new):
            members = [request for _, requests in group for request in requests]
            ranked = None if self._ranking is None else self._ranking(members, self._sources, self._done)
            for at, (changes, requests) in enumerate(group):
                if ranked is None:
                    self._train_row(len(self.rows), changes, requests)
                else:
                    self._rank_row(changes, ranked.part(at * len(requests), len(requests)))
                LOG.info("%s: %s %s", said(changes), self.metric, shown(self.rows[-1]["mean"]))

    def _train_row(self, at: int, changes: Mapping[str, Any], requests: Sequence[Request]) -> None:
        trained = [self._member(request, at) for request in requests]
        failed = {str(one.seed): one.failed for one in trained if one.failed is not None}
        row = {
            **row_of(changes, [one.score for one in trained], failed),
            "runs": [one.name for one in trained if one.failed is None],
            "seconds": sum(outcome.seconds for one in trained for outcome in one.run.outcomes),
            "cached": sum(_was_cached(one.run) for one in trained),
            "together": False,
        }
        self.rows[at : at + 1], self._trained[at : at + 1] = [row], [trained]

    def _rank_row(self, changes: Mapping[str, Any], ranked: Ranked) -> None:
        failed = {str(row["seed"]): row["failed"] for row in ranked.rows if "failed" in row}
        self.rows.append({
            **row_of(changes, [row.get("score") for row in ranked.rows], failed), "runs": [],
            "seconds": ranked.seconds, "cached": len(ranked.rows) if ranked.cached else 0, "together": True,
        })  # fmt: skip
        self._trained.append([])

    def winner(self) -> tuple[int, Trained]:
        """Index of the best row, and the member of it that goes to the gate, trained as `flows.train` does it.

        The best has the best mean; the first of equals. Its member is the best one by the validation split, and without
        such a split the one of the first seed: the best by the test split would be the luckiest. A winner of a ranking
        that fails as a training of its own is a row that can't win.

        Raises:
            TrainingError: No recipe was trained to its end with every seed.
        """
        while True:
            best = self._best()
            row = self.rows[best]
            if row["together"]:
                requests = self.requests(row["changes"])
                if self._confirm:
                    self._train_row(best, row["changes"], requests)
                    continue
                self._trained[best] = [self._member(requests[self._chosen(row["scores"])], best)]
            members = self._trained[best]
            one = members[self._chosen([member.score for member in members])]
            if one.failed is None:
                return best, one
            row.update(mean=None, interval=None, failed={str(one.seed): one.failed})

    def _best(self) -> int:
        means = [row["mean"] for row in self.rows]
        known = [at for at, mean in enumerate(means) if mean is not None and math.isfinite(mean)]
        if not known:
            raise TrainingError("no recipe of the sweep was trained to its end with every seed",
                                failed=self.rows[0]["failed"] if self.rows else None)  # fmt: skip
        return min(known, key=lambda at: means[at] if self.lower else -means[at])

    def _chosen(self, scores: Sequence[float | None]) -> int:
        """Which of a recipe's members goes to the gate."""
        if self.split == "test":
            return 0
        return min(range(len(scores)), key=lambda at: (scores[at] or 0.0) * (1 if self.lower else -1))

    def to_json(self) -> dict[str, Any]:
        """The sweep as JSON."""
        note = SEEN if self.split == "test" else UNSEEN.format(self.split)
        return {
            "dataset": self.base.name, "metric": self.metric, "lower_is_better": self.lower, "split": self.split,
            "note": note, "seeds": self.seeds, "confidence": CONFIDENCE, "rows": self.rows,
            "groups": [] if self._ranking is None else self._ranking.groups,
        }  # fmt: skip

    def _member(self, request: Request, at: int) -> Trained:
        run = Member(request, sources=self._sources, done=self._done)
        seed = request.dataset.recipe.seed
        name = f"{self.name}-{at}-{seed}"
        try:
            made = self.train(run)
        except NonFiniteError as error:
            LOG.warning("seed %d of %s: %s", seed, said(request.changed), error.what)
            return Trained(run, seed, name, {}, None, error.what)
        if self.split == "test":
            score = run.store.facts(made["evaluation"]).get(self.metric)
        else:
            weights = {"records": made["records"], "weights": made["weights"]}
            score = run.store.facts(choose(run, **weights))[self.metric]
        write_run(run, summarise(run, name))
        return Trained(run, seed, name, made, score)


def row_of(
    changes: Mapping[str, Any], scores: Sequence[float | None], failed: Mapping[str, str]
) -> dict[str, Any]:  # fmt: skip
    """What a recipe's scores say of it."""
    known = [score for score in scores if score is not None]
    whole = len(known) == len(scores)
    return {
        "changes": dict(changes), "scores": list(scores), "mean": float(np.mean(known)) if whole else None,
        "interval": interval_of_mean(known) if whole else None, "failed": dict(failed),
    }  # fmt: skip


def interval_of_mean(values: list[float]) -> list[float] | None:
    """The interval of the mean over seeds, [low, high], by Student's t; None for fewer than two values.

    It says how far the mean of so many seeds is from that of all seeds, on these examples; nothing about other ones.

    Args:
        values: One a seed.
    """
    from scipy.stats import t

    if len(values) < 2:
        return None
    half = t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return [float(np.mean(values) - half), float(np.mean(values) + half)]


def _was_cached(run: Run) -> bool:
    return any(outcome.name == "fit" and outcome.state == "cached" for outcome in run.outcomes)
