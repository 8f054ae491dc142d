"""A small table of mixed columns (amounts with gaps, countries as text, a label), and requests that train on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import toy

from datasets.schema import Columns, Dataset, Feature, Rows, Validation
from datasets.transforms import Impute, OneHot, SideBySide, Standardise, Vocabulary
from tasks.artifact import Artifact, Draft
from tasks.feed import plan_input
from tasks.fitted import write_fitted
from tasks.request import Request
from tasks.stage import Outcome, Run
from tasks.transform import fit_transforms, train_split, transformed
from tasks.validate import validate_records
from tasks.weights import build_model, save_weights

ROWS, TRAIN = 240, 160
COUNTRIES = ("at", "ch", "de", "ée")
FEATURES = {
    "amount": Feature("float32", low=-1),
    "three": Feature("float32", (3,)),
    "country": Feature("uint8", (4,)),
    "shop": Feature("int64"),
    "label": Feature("int32", classes=("good", "bad")),
}
TRANSFORMS: dict[str, Any] = {
    "amount": (Impute(missing=-1.0), Standardise()),
    "three": Standardise(),
    "country": (Vocabulary(), OneHot()),
    "shop": (Vocabulary(most=3), OneHot()),
    "inputs": SideBySide("amount", "three", "country", "shop"),
}


def texts(values: list[str], width: int = 4) -> np.ndarray:
    return np.array([value.encode() for value in values], f"S{width}").view(np.uint8).reshape(len(values), width)


def table(rows: int = ROWS, seed: int = 0) -> Columns:
    """Bad where the amount is large, or in the country "ée"; column 1 of `three` is constant."""
    random = np.random.default_rng(seed)
    amount = random.gamma(2.0, 50.0, rows).astype(np.float32)
    country = random.integers(0, len(COUNTRIES), rows)
    label = ((amount > 130) | (country == 3)).astype(np.int32)
    amount[random.random(rows) < 0.1] = -1
    three = np.stack([random.normal(5, 3, rows), np.full(rows, 7.5), random.normal(-1e3, 1e-2, rows)], axis=1)
    return {
        "amount": amount, "three": three.astype(np.float32), "country": texts([COUNTRIES[i] for i in country]),
        "shop": random.choice(np.array([7, 11, 13, 2**30]), rows), "label": label,
    }  # fmt: skip


def dataset(columns: Columns | None = None, **changes: Any) -> Dataset:
    made = Dataset(
        about="A table", source=toy.dataset().source, read=toy.reader_of(columns or table()), features=FEATURES,
        inputs="inputs", label="label", splits={"train": Rows(0, TRAIN), "test": Rows(TRAIN, ROWS)},
        validation=Validation(leaks="warn"), transforms=TRANSFORMS,
    )  # fmt: skip
    return replace(made, **changes)


def request_for(store: Path, made: Dataset | None = None, **parameters: Any) -> Request:
    return toy.request_for(store, made or dataset(), **parameters)


class InMemory:
    """Rows of columns in memory."""

    def __init__(self, columns: Columns) -> None:
        self.columns, self.features, self.digest = columns, FEATURES, "d"

    def __len__(self) -> int:
        return len(self.columns["label"])

    def read(self, ids: np.ndarray) -> Columns:
        return {name: column[ids] for name, column in self.columns.items()}


class Bodies(Run):
    """A run whose stages are called without Prefect and without a cache."""

    def take(self, stage: Any, inputs: dict[str, Artifact]) -> Artifact:
        components = stage.components(self, inputs)
        job = toy.job(self.request, stage.name)
        made = stage.body(replace(job, components=components), **inputs)
        self.outcomes.append(Outcome(stage.name, job.key, "ran", 0.0, made, job.notes))
        return made


def prepare(request: Request) -> tuple[Request, dict[str, Artifact]]:
    """The request as it is after stage `transform`, and the inputs of `fit`."""
    run = Bodies(request)
    records = toy.records_of(request)
    report = validate_records(toy.job(request, "validate"), records=records)
    made = transformed(run, records, report)
    plan = plan_input(toy.job(run.request, "feed"), records, report)
    return run.request, {"records": records, "report": report, "plan": plan, **made}


def fitted_artifact(request: Request, records: Artifact, key: str = "transform-1") -> Artifact:
    report = validate_records(toy.job(request, "validate", f"validate-{key}"), records=records)
    train = train_split(Run(request), records)
    return fit_transforms(toy.job(request, "transform", key), train, records, report)


def untrained(request: Request, key: str, seed: int = 0) -> Artifact:
    """Weights of a fresh model for what a request's model sees, as a training keeps them: fast, and as good here."""
    made = request.dataset
    label, recipe = made.features[made.label], made.recipe
    model = build_model(recipe.model, made.features[made.inputs], len(label.classes), dropout=0.0, seed=seed)
    model.eval()

    def fill(draft: Draft) -> None:
        save_weights(draft.folder, model, made)
        write_fitted(draft.folder, request.fitted)
        history = [{"step": 0, "loss": 1.0}, {"step": 0, "test_loss": 1.0, "test_accuracy": 0.5}]
        (draft.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in history))
        draft.facts = {"steps": 1}

    return toy.job(request, "fit", key).commit("weights", fill)
