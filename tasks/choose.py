"""Stage `choose`: the gate's metric on the validation split, by which a sweep chooses; the test split stays unseen.

Only sweeps of a dataset with a split of that name have this stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.schema import Dataset
from datasets.splits import names_of
from tasks.artifact import Artifact, Draft
from tasks.evaluate import predict_split
from tasks.fit import model_code
from tasks.stage import Job, Run, Stage

if TYPE_CHECKING:
    from tasks.predictor import Predictions

VALIDATION = ("validation", "val")


def validation_split(dataset: Dataset) -> str | None:
    """Name of the split that models are chosen on; None if the dataset has none."""
    return next((name for name in names_of(dataset.splits) if name in VALIDATION), None)


def score_validation(job: Job, records: Artifact, weights: Artifact) -> Artifact:
    """The gate's metric of stored weights on the validation split, in the facts of an artifact.

    Raises:
        NonFiniteError: The model gives NaN or an infinity for an example.
    """
    from tasks.compiled import use_compilation_cache

    use_compilation_cache(job.store.root)
    dataset = job.request.dataset
    split, metric = validation_split(dataset) or "", dataset.gate.metric
    found, traces = predict_split(job.store, job.request, records, weights, split)
    known = metric_of(dataset, found)
    job.notes.update(traces=traces)

    def fill(draft: Draft) -> None:
        draft.facts = {"weights": weights.digest, "split": split, "examples": len(found.labels), metric: known}

    return job.commit("choice", fill)


def metric_of(dataset: Dataset, found: Predictions) -> float | None:
    """The gate's metric of predictions, every example counted once; None if it is undefined for them."""
    from tasks.judge import measures_of

    metric = dataset.gate.metric
    measures = measures_of(dataset.features[dataset.label].classes)
    measure = measures(found.labels, found.logits, found.losses, only={metric}).get(metric)
    once = np.ones((1, len(found.labels)), np.float32)
    value = float("nan") if measure is None else float(measure(once)[0])
    return value if np.isfinite(value) else None


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {
        "split": validation_split(dataset), "metric": dataset.gate.metric, "inputs": dataset.inputs,
        "label": dataset.label, "classes": dataset.features[dataset.label].classes,
    }  # fmt: skip


choose = Stage(
    "choose", score_validation, _reads, libraries=("jax", "jaxlib", "flax", "numpy", "scikit-learn", "scipy"),
    code=model_code,
)  # fmt: skip
