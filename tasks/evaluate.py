"""Stage `evaluate`: every example of the test split counted once; metrics, predictions and plots."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from datasets.errors import NonFiniteError
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import write_bytes, write_json
from tasks.feed import columns
from tasks.fit import model_code
from tasks.progress import bar
from tasks.request import Request
from tasks.stage import Job, Run, Stage

METRICS = "metrics.json"
PREDICTIONS = "predictions.npz"
LOSS_CURVE = "loss_curve.png"
CONFUSION = "confusion_matrix.png"
BATCH_SIZE = 256


def evaluate_weights(job: Job, records: Artifact, weights: Artifact) -> Artifact:
    """Metrics of the test split, its predictions example by example, a loss curve and a confusion matrix.

    Raises:
        NonFiniteError: The model gives NaN or an infinity for an example.
        CheckpointMismatch: The weights are of another model than today's code builds.
    """
    from tasks import plots
    from tasks.compiled import use_compilation_cache
    from tasks.metric_log import read_metrics
    from tasks.scoring import ranking, score
    from tasks.training import METRICS as HISTORY

    use_compilation_cache(job.store.root / "compiled")
    dataset = job.request.dataset
    classes = dataset.features[dataset.label].classes
    predictions, traces = predict_split(job.store, job.request, records, weights, "test")
    metrics = score(predictions.labels, predictions.predicted, predictions.losses, classes)
    ranks = ranking(predictions.labels, predictions.logits)
    metrics |= ranks
    job.notes.update(traces=traces)

    def fill(draft: Draft) -> None:
        write_json(draft.folder / METRICS, metrics)
        write_bytes(draft.folder / PREDICTIONS, _npz(predicted=predictions.predicted, logits=predictions.logits))
        history = read_metrics(job.store.path(weights) / HISTORY)
        write_bytes(draft.folder / LOSS_CURVE, plots.loss_curve(history))
        write_bytes(draft.folder / CONFUSION, plots.confusion_matrix(np.array(metrics["confusion"]), classes))
        draft.facts = {
            "records": records.digest,
            "weights": weights.digest,
            **{name: metrics[name] for name in ("examples", "correct", "accuracy", "loss", *ranks)},
        }

    return job.commit("evaluation", fill)


def predict_split(
    store: Store, request: Request, records: Artifact, weights: Artifact, split: str
) -> tuple[Any, dict[str, Any]]:
    """Predictions of stored weights for a split, and the report of the trace budget.

    Raises:
        NonFiniteError: A logit or a loss is NaN or infinite; the example is named.
        CheckpointMismatch: As `load_model`.
    """
    from tasks.predictor import Predictor
    from tasks.weights import load_model

    dataset = request.dataset
    model, card = load_model(store.path(weights))
    source = columns(store, request, records, split)
    predictor = Predictor(model, card["inputs"], card["label"], dataset.features[card["inputs"]], BATCH_SIZE)
    with bar("evaluate", len(source), "examples") as progress:

        def read(ids: np.ndarray) -> dict[str, np.ndarray]:
            progress.advance(len(ids))
            return source.read(ids)

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
    return predictions, predictor.budget.report()


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # its times are fixed, so equal arrays give equal bytes
    return file.getvalue()


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {"classes": dataset.features[dataset.label].classes, "inputs": dataset.inputs, "label": dataset.label}


evaluate = Stage(
    "evaluate",
    evaluate_weights,
    _reads,
    libraries=("jax", "jaxlib", "flax", "numpy", "scikit-learn", "matplotlib"),
    code=model_code,
)
