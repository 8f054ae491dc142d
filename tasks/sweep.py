"""Recipes held against each other: each is trained with several seeds, and the best by its mean goes to the gate.

A member of a sweep is an ordinary training with the keys of `flows.train`: what is done is in the cache, before the
sweep, after a kill, and for whoever asks for the same training later. Members share every stage before `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets.errors import NonFiniteError, TrainingError
from datasets.gate import LOWER_IS_BETTER
from datasets.schema import check_int
from tasks.artifact import Artifact
from tasks.choose import choose, validation_split
from tasks.decision import shown
from tasks.fingerprint import Sources
from tasks.intervals import CONFIDENCE
from tasks.progress import LOG
from tasks.request import Request, check
from tasks.run_record import write_run
from tasks.stage import Outcome, Run, Stage, key_of
from tasks.summary import summarise

UNSEEN = "the recipe was chosen on the {} split; the test split had no say"
SEEN = (
    "the dataset has no split named validation or val, so the recipe was chosen on the test split: its figures are "
    "optimistic; the weights that went to the gate are those of the first seed, not of the best"
)


@dataclass
class Member(Run):
    """A training of a sweep.

    Attributes:
        done: Outcomes of the sweep's stages so far, by key: a stage that members share is looked up once.
    """

    done: dict[str, Outcome] = field(default_factory=dict)

    def take(self, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        """The artifact of a stage: from this sweep, from the cache, or made."""
        key = key_of(stage.components(self, inputs))
        if key in self.done:
            self.outcomes.append(replace(self.done[key], state="cached", seconds=0.0, because=()))
        else:
            super().take(stage, inputs)
            self.done[key] = self.outcomes[-1]
        return self.outcomes[-1].artifact


@dataclass
class Trained:
    """What became of a member.

    Attributes:
        run: With its outcomes.
        seed: Of the training.
        name: Of its record.
        made: Artifacts by the name under which `promote` takes them; empty if it failed.
        score: The metric that is chosen by; None if it failed or the metric is undefined.
        failed: What went wrong.
    """

    run: Run
    seed: int
    name: str
    made: dict[str, Artifact]
    score: float | None
    failed: str | None = None


class Sweep:
    """One sweep over a dataset.

    Args:
        base: The request that all members change, raw files known.
        seeds: How many trainings each recipe gets: with the seed of `base` and those after it.
        train: Takes a run through all stages but the gate, and gives what the gate needs.
        name: Of the flow run; members' records are named after it.
        sources: The code, for the keys.

    Attributes:
        rows: A row for each recipe, in the order in which they were tried.
        metric: The gate's, by which recipes are chosen.
        split: On which.
        lower: Whether less of the metric is better.
    """

    def __init__(
        self, base: Request, seeds: int, train: Callable[[Run], dict[str, Artifact]], name: str,
        sources: Sources | None = None,
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
        """Trains a recipe with every seed and gives the mean of its scores; None if a member failed.

        A training whose loss isn't finite is a result: that recipe can't be chosen. Every other error ends the sweep.
        """
        for row in self.rows:
            if row["changes"] == changes:  # a search may come back to it
                return row["mean"]
        trained = [self._member(request) for request in self.requests(changes)]
        scores = [one.score for one in trained if one.score is not None]
        whole = len(scores) == len(trained)
        self._trained.append(trained)
        self.rows.append({
            "changes": dict(changes),
            "scores": [one.score for one in trained],
            "mean": float(np.mean(scores)) if whole else None,
            "interval": interval_of_mean(scores) if whole else None,
            "failed": {str(one.seed): one.failed for one in trained if one.failed is not None},
            "runs": [one.name for one in trained if one.failed is None],
            "seconds": sum(outcome.seconds for one in trained for outcome in one.run.outcomes),
            "cached": sum(_was_cached(one.run) for one in trained),
        })  # fmt: skip
        LOG.info("%s: %s %s", said(changes), self.metric, shown(self.rows[-1]["mean"]))
        return self.rows[-1]["mean"]

    def winner(self) -> tuple[int, Trained]:
        """Index of the best row, and the member of it that goes to the gate.

        The best has the best mean; the first of equals. Its member is the best one by the validation split, and without
        such a split the one of the first seed: the best by the test split would be the luckiest.

        Raises:
            TrainingError: No recipe was trained to its end with every seed.
        """
        means = [row["mean"] for row in self.rows]
        known = [at for at, mean in enumerate(means) if mean is not None and math.isfinite(mean)]
        if not known:
            raise TrainingError("no recipe of the sweep was trained to its end with every seed",
                                failed=self.rows[0]["failed"] if self.rows else None)  # fmt: skip
        best = min(known, key=lambda at: means[at] if self.lower else -means[at])
        members = self._trained[best]
        if self.split == "test":
            return best, members[0]
        return best, min(members, key=lambda one: (one.score or 0.0) * (1 if self.lower else -1))

    def to_json(self) -> dict[str, Any]:
        """The sweep as JSON."""
        note = SEEN if self.split == "test" else UNSEEN.format(self.split)
        return {
            "dataset": self.base.name, "metric": self.metric, "lower_is_better": self.lower, "split": self.split,
            "note": note, "seeds": self.seeds, "confidence": CONFIDENCE, "rows": self.rows,
        }  # fmt: skip

    def _member(self, request: Request) -> Trained:
        run = Member(request, sources=self._sources, done=self._done)
        seed = request.dataset.recipe.seed
        name = f"{self.name}-{len(self.rows)}-{seed}"
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


def said(changes: Mapping[str, Any]) -> str:
    """Changes in words: "learning_rate=0.001 model=cnn"."""
    return " ".join(f"{name}={value}" for name, value in changes.items()) or "the recipe as it is"


def table_of(made: dict[str, Any]) -> list[dict[str, str]]:
    """One row a recipe, the best first, those that failed last."""
    sign = 1 if made["lower_is_better"] else -1
    order = sorted(made["rows"], key=lambda row: (row["mean"] is None, sign * (row["mean"] or 0.0)))
    return [
        {
            "recipe": said(row["changes"]),
            f"{made['metric']}, {made['split']}": shown(row["mean"]) if row["mean"] is not None else "failed",
            f"{made['confidence']:.0%} interval of the mean": "" if row["interval"] is None else shown(row["interval"]),
            "each seed": " ".join("failed" if score is None else shown(score) for score in row["scores"]),
            "from the cache": f"{row['cached']} of {len(row['scores'])}",
            "seconds": f"{row['seconds']:.1f}",
            "": "winner" if row["changes"] == made["winner"]["changes"] else "",
        }
        for row in order
    ]


def show(made: dict[str, Any], console: Console) -> None:
    """Prints the table, and what became of the winner."""
    rows = table_of(made)
    table = Table(title=f"sweep/{made['dataset']}", title_justify="left")
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    console.print(table)
    console.print(f"{made['note'][0].upper()}{made['note'][1:]}.", markup=False)
    decision = made["decision"]
    verdict = "promoted" if decision["promoted"] else "not promoted"
    console.print(f"Winner, seed {made['winner']['seed']}: {verdict} ({decision['reason']}).", markup=False)
    console.print(f"Champion: {made['champion'] or 'none'}.", markup=False)
