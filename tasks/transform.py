"""Stage `transform`: what the dataset file's transforms learn from the train split, and from nothing else.

Its key holds the digest of the train split's shards and not that of all records: other test rows, other key or not,
change nothing. A dataset without transforms has no such stage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.schema import Dataset, in_batches
from datasets.transforms import SideBySide, chain_of
from tasks.artifact import Artifact, Draft
from tasks.durable import read_json
from tasks.feed import check_vouched, columns
from tasks.fitted import TRANSFORMS, Fitted, Rows, Step, write_fitted
from tasks.progress import bar
from tasks.stage import Job, Run, Stage

NUMBERS_AT_ONCE = 1 << 20


def fit_transforms(job: Job, train: Artifact, records: Artifact, report: Artifact) -> Artifact:
    """`transforms.json`: every transform with what it learned.

    Args:
        job: Of the stage.
        train: Stands for the rows of the train split in the key.
        records: The shards.
        report: Vouches for them.

    Raises:
        StoreError: The report vouches for other records than these.
        SchemaError: A feature can't be transformed so.
    """
    check_vouched(job.store, records, report)
    rows = columns(job.store, job.request, records, "train")

    def fill(draft: Draft) -> None:
        fitted = learned(job.request.dataset, rows, job.stage)
        write_fitted(draft.folder, fitted)
        draft.facts = {"fitted": fitted.digest, "features": [step.name for step in fitted.steps]}
        job.notes["values"] = {step.name: step.values for step in fitted.steps if len(json.dumps(step.values)) < 2000}

    return job.commit("transforms", fill)


def learned(dataset: Dataset, rows: Rows, stage: str = "transform") -> Fitted:
    """Fits all transforms of a dataset; those of different features learn in the same pass over the rows.

    Args:
        dataset: Its features and transforms.
        rows: Of the train split.
        stage: For the progress bar.

    Raises:
        SchemaError: A feature can't be transformed so; it is named.
    """
    single = {name: chain_of(t) for name, t in dataset.transforms.items() if not isinstance(t, SideBySide)}
    chains = {name: Chain(name, dataset, rest) for name, rest in single.items()}
    at_once = max(
        1, NUMBERS_AT_ONCE // max(1, sum(int(np.prod(f.shape)) for f in in_batches(dataset.features).values()))
    )
    with bar(stage, None, "rows") as progress:
        while waiting := [chain for chain in chains.values() if chain.learner is not None]:
            for start in range(0, len(rows), at_once):
                block = rows.read(np.arange(start, min(start + at_once, len(rows))))
                for chain in waiting:
                    chain.see(block)
                progress.advance(min(at_once, len(rows) - start))
            for chain in waiting:
                chain.end_pass()
    fitted = Fitted(dataset.features, tuple(step for chain in chains.values() for step in chain.steps))
    for name, transform in dataset.transforms.items():
        if isinstance(transform, SideBySide):
            made = fitted.gives
            step = Step(name, transform, {}, transform.gives([made[one] for one in transform.features]))
            fitted = Fitted(dataset.features, (*fitted.steps, step))
    return fitted


class Chain:
    """The transforms of one feature: each learns from what those before it made.

    Attributes:
        steps: Those that are done.
        learner: Of the next one; None when all are done.
    """

    def __init__(self, name: str, dataset: Dataset, transforms: tuple[Any, ...]) -> None:
        self.name, self._takes = name, {name: dataset.features[name]}
        self._waiting = list(transforms)
        self.steps: tuple[Step, ...] = ()
        self.learner: Any = None
        self._next()

    @property
    def _fitted(self) -> Fitted:
        return Fitted(self._takes, self.steps)

    def _next(self) -> None:
        """Goes on to the next transform that has something to learn."""
        self.learner, self._so_far = None, self._fitted
        while self._waiting and self.learner is None:
            self.learner = self._named(lambda: self._waiting[0].learner(self._so_far.gives[self.name]))
            if self.learner is None:
                self._done({})

    def _done(self, values: dict[str, Any]) -> None:
        transform = self._waiting.pop(0)
        gives = transform.gives(self._so_far.gives[self.name], values)
        self.steps = (*self.steps, Step(self.name, transform, values, gives))
        self._so_far = self._fitted

    def see(self, block: Mapping[str, np.ndarray]) -> None:
        """Shows a block of the records' columns to the transform that learns."""
        column = self._so_far.apply({self.name: block[self.name]})[self.name]
        self._named(lambda: self.learner.add(column))

    def end_pass(self) -> None:
        """All rows were seen once more."""
        values = self._named(self.learner.end)
        if values is not None:
            # Once through JSON, so that what is used now is what will be read
            self._done(json.loads(json.dumps(values, allow_nan=False)))
            self._next()

    def _named(self, call: Any) -> Any:  # noqa: ANN401
        try:
            return call()
        except SchemaError as error:
            error.facts.setdefault("field", self.name)
            raise


def transformed(run: Run, records: Artifact, report: Artifact) -> dict[str, Artifact]:
    """Runs the stage if the dataset has transforms; from then on, the run's dataset is the one that the model sees.

    Returns:
        Inputs for the stages that train: {"transforms": artifact}, or nothing.
    """
    if not run.request.dataset.transforms:
        return {}
    made = transform(run, train=train_split(run, records), records=records, report=report)
    if made.digest:  # a plan may not know yet what it would be
        fitted = Fitted.from_json(read_json(run.store.path(made) / TRANSFORMS))
        seen = fitted.dataset(run.request.dataset)
        run.request = replace(run.request, dataset=seen, fitted=fitted)
    return {"transforms": made}


def train_split(run: Run, records: Artifact) -> Artifact:
    """A handle of the records whose digest is that of the train split's rows alone."""
    if not records.digest:
        return records
    shards = run.store.facts(records)["splits"]["train"]["shards"]
    text = json.dumps(shards, sort_keys=True)
    return replace(records, digest=hashlib.sha256(text.encode()).hexdigest())


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {"transforms": dataset.transforms, "order": list(dataset.transforms), "features": dataset.features}


transform = Stage("transform", fit_transforms, _reads, libraries=("numpy",), advisory=frozenset({"records", "report"}))
