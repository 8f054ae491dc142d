"""Whether a model is right as often as it says: reliability by bins of confidence, and the expected calibration error.

ECE is the mean distance between confidence and accuracy over bins of equal width, weighted by their examples (Guo et
al. 2017, On Calibration of Modern Neural Networks). It is never negative, so the interval of a well calibrated model
lies above 0, and it may lie above the figure itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.intervals import Measure

BINS = 15


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax, float64 [N, classes]."""
    z = logits.astype(np.float64)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def reliability(logits: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    """One row for each bin that has examples: its ends, examples, how many are right, and the mean confidence."""
    confidence, right, index = _binned(logits, labels)
    return [
        {"low": k / BINS, "high": (k + 1) / BINS, "examples": int((index == k).sum()),
         "correct": int(right[index == k].sum()), "confidence": float(confidence[index == k].mean())}
        for k in np.unique(index).tolist()
    ]  # fmt: skip


def calibration_error(bins: list[dict[str, Any]]) -> float:
    """The ECE of the rows of `reliability`."""
    total = sum(row["examples"] for row in bins)
    return sum(abs(row["confidence"] * row["examples"] - row["correct"]) for row in bins) / total


def calibration_measure(logits: np.ndarray, labels: np.ndarray) -> Measure:
    """The ECE of draws."""
    confidence, right, index = _binned(logits, labels)
    gaps = np.zeros((len(labels), BINS), np.float32)
    gaps[np.arange(len(labels)), index] = confidence - right
    return lambda counts: np.abs(counts @ gaps).sum(axis=1) / counts.shape[1]


def _binned(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    confidence = probabilities(logits).max(axis=1)
    right = logits.argmax(axis=1) == labels
    return confidence, right, np.minimum((confidence * BINS).astype(int), BINS - 1)
