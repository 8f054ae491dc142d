"""What is said of a model whose label is a number: metrics with intervals, slices, the gate's figures, largest errors.

The counterpart of `scoring.py` and `mistakes.py`; `judge.py` chooses. What is minimised stands in `target.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.dealing import origin_of
from tasks.intervals import CONFIDENCE, Measure, draws_for, interval, resampled

if TYPE_CHECKING:
    from tasks.predictor import Predictions

SEED = 0
MOST = 30
"""Largest errors that are kept."""
FLAT = 1e-12
"""A draw whose labels vary by less of their second moment is of one value, and R2 undefined."""


def score(labels: np.ndarray, outputs: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Metrics of a split, as JSON.

    Args:
        labels: float [N], the truth.
        outputs: float32 [N, 1], the estimates.
        losses: float32 [N], squared errors.

    Returns:
        examples, rmse and mae in the label's unit, r2 (the share of the variance that is explained; None for labels of
        one value), loss (mean squared error), `intervals` with [low, high] of each or None, and `bootstrap`.
    """
    number = draws_for(len(labels))
    drawn = resampled(measures(labels, outputs, losses), len(labels), number, SEED)
    return {
        **_figures(labels, outputs, losses),
        "intervals": {name: interval(values) for name, values in drawn.items()},
        "bootstrap": {"draws": number, "seed": SEED, "confidence": CONFIDENCE},
    }


def score_part(labels: np.ndarray, outputs: np.ndarray, losses: np.ndarray, seed: int = SEED) -> dict[str, Any]:
    """Metrics of a slice: as `score`, without loss and how the intervals were made."""
    drawn = resampled(
        measures(labels, outputs, losses, ("mae", "r2", "rmse")), len(labels), draws_for(len(labels)), seed
    )
    figures = {name: value for name, value in _figures(labels, outputs, losses).items() if name != "loss"}
    return {**figures, "intervals": {name: interval(values) for name, values in drawn.items()}}


def _figures(labels: np.ndarray, outputs: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    truth, estimates = labels.astype(np.float64), outputs[:, 0].astype(np.float64)
    varied = len(truth) > 1 and np.ptp(truth) > 0
    return {
        "examples": len(truth),
        "rmse": float(root_mean_squared_error(truth, estimates)),
        "mae": float(mean_absolute_error(truth, estimates)),
        "r2": float(r2_score(truth, estimates)) if varied else None,
        "loss": float(losses.astype(np.float64).mean()),
    }


def measures(
    labels: np.ndarray, outputs: np.ndarray, losses: np.ndarray, only: Collection[str] | None = None
) -> dict[str, Measure]:
    """The metrics for draws of the examples; see `scoring.measures`."""
    truth = labels.astype(np.float64)
    errors = truth - outputs[:, 0].astype(np.float64)
    centred = truth - truth.mean()  # so that the variance isn't the difference of two large numbers
    made: dict[str, Measure] = {
        "rmse": lambda counts: np.sqrt(_mean(counts, errors**2)),
        "mae": lambda counts: _mean(counts, np.abs(errors)),
        "r2": lambda counts: _r2(counts, errors, centred),
        "loss": lambda counts: _mean(counts, losses.astype(np.float64)),
    }
    return {name: measure for name, measure in made.items() if only is None or name in only}


def _mean(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    return counts @ values / counts.shape[1]


def _r2(counts: np.ndarray, errors: np.ndarray, centred: np.ndarray) -> np.ndarray:
    moment = _mean(counts, centred**2)
    variance = moment - _mean(counts, centred) ** 2
    flat = variance <= FLAT * moment
    return np.where(flat, np.nan, 1 - _mean(counts, errors**2) / np.where(flat, 1, variance))


def rise(candidate: Predictions, champion: Predictions, rows: np.ndarray) -> dict[str, Any]:
    """How far the rmse in a slice lies above the champion's, as a share of it; for the gate.

    Args:
        candidate: Its answers.
        champion: Its answers to the same examples.
        rows: bool [N], the slice.
    """
    now, before = (
        math.sqrt(np.square(each.labels[rows].astype(np.float64) - each.logits[rows, 0]).mean())
        for each in (candidate, champion)
    )
    # Above a champion without any error no share is defined, and none is small enough
    got = 0.0 if now == before else now / before - 1 if before else None
    return {"got": got, "candidate_rmse": now, "champion_rmse": before}


def mistakes(
    labels: np.ndarray, outputs: np.ndarray, losses: np.ndarray, origin: list[list[Any]]
) -> list[dict[str, Any]]:
    """The `MOST` largest errors, largest first.

    Args:
        labels: float [N], the truth.
        outputs: float32 [N, 1], the estimates.
        losses: float32 [N].
        origin: Runs of raw rows of this split, from `origin.json`.

    Returns:
        For each: example, file and row (counted from 0), truth, predicted, error (predicted - truth), loss, and why.
    """
    errors = outputs[:, 0].astype(np.float64) - labels.astype(np.float64)
    worst = np.argsort(-np.abs(errors), kind="stable")[:MOST]
    rows = []
    for example in worst[errors[worst] != 0].tolist():
        file, row = origin_of(origin, example)
        rows.append({
            "example": example, "file": file, "row": row, "truth": float(labels[example]),
            "predicted": float(outputs[example, 0]), "error": float(errors[example]), "loss": float(losses[example]),
            "why": "largest error",
        })  # fmt: skip
    return rows
