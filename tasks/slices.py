"""Metrics of parts of a split: the examples with one value of a column, such as a month or a country."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from datasets.schema import Dataset, Feature
from tasks.scoring import score_part

MOST = 50
OTHERS = "other values"


def parts(column: np.ndarray, feature: Feature) -> dict[str, np.ndarray]:
    """The slices of a column: by name, which examples are in it, bool [N].

    The `MOST` most frequent values have a slice each, in the order of the values; the rest are one slice.

    Args:
        column: int or bool [N].
        feature: Of the column; a value is called by its class if there are classes.
    """
    values, counts = np.unique(column, return_counts=True)
    named = np.sort(values[np.argsort(-counts, kind="stable")[:MOST]])
    made = {feature.classes[int(v)] if feature.classes else str(v.item()): column == v for v in named}
    rest = ~np.isin(column, named)
    return {**made, OTHERS: rest} if rest.any() else made


def slice_columns(dataset: Dataset, columns: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """The slices that a dataset file asks for: by column and name, which examples are in it."""
    return {name: parts(columns[name], dataset.features[name]) for name in dataset.slices}


def score_slices(
    slices: Mapping[str, Mapping[str, np.ndarray]], labels: np.ndarray, logits: np.ndarray, losses: np.ndarray,
    score: Callable[..., dict[str, Any]] = score_part,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Metrics of each slice, with intervals.

    Args:
        slices: By column and name, which examples are in it.
        labels: [N], the truth.
        logits: float32 [N, outputs].
        losses: float32 [N].
        score: Gives the metrics of one, from its labels, outputs and losses.
    """
    return {
        column: {name: score(labels[rows], logits[rows], losses[rows]) for name, rows in each.items()}
        for column, each in slices.items()
    }
