"""The few figures of a test split that a table or a title shows: of classes, or of a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RANKS = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}
ERRORS = {"rmse": "RMSE", "mae": "MAE", "r2": "R2"}
"""Of a number; RMSE and MAE are in its unit."""
SHOWN = ("accuracy", "loss", "correct", "examples", *RANKS, *ERRORS)


def headline(metrics: Mapping[str, Any]) -> str:
    """The one figure: accuracy, or of a number the root mean squared error."""
    return f"{metrics['accuracy']:.2%}" if "accuracy" in metrics else f"RMSE {metrics['rmse']:.4g}"


def figure_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What, and how much, for a table of two columns."""
    first = [(f"test {label}", f"{metrics[name]:.4g}") for name, label in ERRORS.items() if name in metrics]
    if "accuracy" in metrics:
        counted = f"({metrics['correct']:,} of {metrics['examples']:,})"
        first = [("test accuracy", f"{metrics['accuracy']:.2%} {counted}")]
    ranks = [(label, f"{metrics[name]:.4f}") for name, label in RANKS.items() if name in metrics]
    return [*first, ("test loss", f"{metrics['loss']:.4f}"), *ranks]
