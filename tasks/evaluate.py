"""Stage `evaluate`: every example of the test split counted once; metrics, predictions and plots."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.errors import CheckpointMismatch, NonFiniteError
from tasks.artifact import Artifact, Draft, Store
from tasks.dealing import ORIGIN
from tasks.durable import read_json, write_bytes, write_json
from tasks.feed import as_trained, columns, read_columns
from tasks.fit import model_code
from tasks.progress import bar
from tasks.request import Request
from tasks.stage import Job, Run, Stage

if TYPE_CHECKING:
    from tasks.predictor import Predictions

METRICS = "metrics.json"
PREDICTIONS = "predictions.npz"
LOSS_CURVE = "loss_curve.png"
CONFUSION, PREDICTED_TRUE = "confusion_matrix.png", "predicted_true.png"  # of classes, of numbers
MISTAKES, MISTAKES_PICTURE, MISTAKES_PAGE = "mistakes.json", "mistakes.png", "mistakes.md"
BATCH_SIZE = 256


def evaluate_weights(job: Job, records: Artifact, weights: Artifact) -> Artifact:
    """Metrics of the test split and its slices, predictions example by example, plots, and the worst mistakes.

    Raises:
        NonFiniteError: The model gives NaN or an infinity for an example.
        CheckpointMismatch: The weights are of another model than today's code builds.
    """
    from tasks import plots
    from tasks.compiled import use_compilation_cache
    from tasks.judge import drawn, part_of, score_of
    from tasks.metric_log import read_metrics
    from tasks.slices import score_slices, slice_columns
    from tasks.training import METRICS as HISTORY

    use_compilation_cache(job.store.root)
    dataset = job.request.dataset
    classes = dataset.features[dataset.label].classes
    answers, traces = predict_split(job.store, job.request, records, weights, "test")
    figures = (answers.labels, answers.logits, answers.losses)
    metrics = score_of(classes)(*figures)
    sliced = read_columns(job.store, job.request, records, "test", dataset.slices)
    metrics["slices"] = score_slices(slice_columns(dataset, sliced), *figures, part_of(classes))
    job.notes.update(traces=traces)

    def fill(draft: Draft) -> None:
        write_json(draft.folder / METRICS, metrics)
        write_bytes(draft.folder / PREDICTIONS, _npz(logits=answers.logits, losses=answers.losses))
        history = read_metrics(job.store.path(weights) / HISTORY)
        write_bytes(draft.folder / LOSS_CURVE, plots.loss_curve(history))
        said = CONFUSION if classes else PREDICTED_TRUE
        write_bytes(draft.folder / said, drawn(classes, metrics, answers.labels, answers.logits))
        _write_mistakes(draft.folder, job, records, figures)
        draft.facts = {
            "records": records.digest,
            "weights": weights.digest,
            **{name: value for name, value in metrics.items() if isinstance(value, int | float)},
            "intervals": metrics["intervals"],
        }

    return job.commit("evaluation", fill)


def _write_mistakes(folder: Path, job: Job, records: Artifact, figures: tuple[np.ndarray, ...]) -> None:
    """The worst mistakes as JSON, and as a grid of pictures or, if the inputs are none, as a table."""
    from tasks.judge import mistakes_of
    from tasks.mistakes import captions, is_picture, page
    from tasks.plots import pictures

    dataset = job.request.dataset
    origin = read_json(job.store.path(records) / ORIGIN)["test"]
    rows = mistakes_of(dataset.features[dataset.label].classes)(*figures, origin)
    write_json(folder / MISTAKES, rows)
    ids = np.array([row["example"] for row in rows], np.int64)
    shown = columns(job.store, job.request, records, "test").read(ids) if rows else {}
    if rows and is_picture(dataset.features[dataset.inputs]):
        write_bytes(folder / MISTAKES_PICTURE, pictures(shown[dataset.inputs], captions(rows)))
    else:
        write_bytes(folder / MISTAKES_PAGE, page(rows, shown, dataset.inputs, dataset.label).encode())


def said_against_truth(folder: Path) -> tuple[str, Path]:
    """The plot of an evaluation that shows what was said against what is true: its title, and where it is."""
    if (numbers := folder / PREDICTED_TRUE).is_file():
        return "Predicted against true", numbers
    return "Confusion matrix", folder / CONFUSION


def predict_split(
    store: Store, request: Request, records: Artifact, weights: Artifact, split: str
) -> tuple[Predictions, dict[str, Any]]:
    """Predictions of stored weights for a split, and the report of the trace budget.

    Classes are matched by name: weights that were trained when the dataset file named the same classes in another order
    answer in today's order.

    Raises:
        NonFiniteError: A logit or a loss is NaN or infinite; the example is named.
        CheckpointMismatch: As `load_model`, or the weights are of other classes.
    """
    from tasks.predictor import Predictor
    from tasks.target import target_of
    from tasks.weights import load_model

    dataset, request = request.dataset, as_trained(request, store.path(weights))
    model, card = load_model(store.path(weights))
    place = places(card["classes"], dataset.features[card["label"]].classes)
    source = columns(store, request, records, split)
    predictor = Predictor(
        model, card["inputs"], card["label"], source.features[card["inputs"]], BATCH_SIZE, target_of(card["classes"])
    )
    with bar("evaluate", len(source), "examples") as progress:

        def read(ids: np.ndarray) -> dict[str, np.ndarray]:
            progress.advance(len(ids))
            batch = source.read(ids)
            return {**batch, card["label"]: places_of(place, batch[card["label"]])}

        predictions = predictor.predict(len(source), read)
    # Finite logits that are far enough apart still have an infinite loss.
    bad = np.flatnonzero(~(np.isfinite(predictions.logits).all(axis=1) & np.isfinite(predictions.losses)))
    if bad.size:
        raise NonFiniteError(
            "the model gives a logit or a loss that isn't finite",
            split=split,
            record=int(bad[0]),
            count=f"{bad.size} examples",
        )
    if len(place):
        labels = places_of(np.argsort(place), predictions.labels)
        predictions = replace(predictions, labels=labels, logits=predictions.logits[:, place])
    return predictions, predictor.budget.report()


def places_of(place: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels with each class at its place; a number, which has no classes, is what it is."""
    return place[labels].astype(labels.dtype) if len(place) else labels


def places(stored: Sequence[str], today: Sequence[str]) -> np.ndarray:
    """Index among the classes of stored weights of each of today's classes, int [classes].

    Raises:
        CheckpointMismatch: They aren't the same names.
    """
    if sorted(stored) != sorted(today):
        raise CheckpointMismatch("the weights are of other classes", got=list(stored), expected=list(today))
    return np.array([list(stored).index(name) for name in today], np.int64)


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # its times are fixed, so equal arrays give equal bytes
    return file.getvalue()


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {
        "classes": dataset.features[dataset.label].classes, "inputs": dataset.inputs, "label": dataset.label,
        "slices": {name: dataset.features[name].classes for name in dataset.slices},
    }  # fmt: skip


evaluate = Stage(
    "evaluate",
    evaluate_weights,
    _reads,
    libraries=("jax", "jaxlib", "flax", "numpy", "scikit-learn", "scipy", "matplotlib"),
    code=model_code,
)
