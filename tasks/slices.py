"""Metrics of parts of a split: the examples with one value of a column, such as a month or a country."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.schema import Dataset, Feature
from tasks.intervals import draws_for, interval, resampled
from tasks.scoring import measures

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
    seed: int = 0,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """examples, correct, accuracy and loss of each slice, with intervals."""
    made: dict[str, dict[str, Any]] = {}
    for column, each in slices.items():
        made[column] = {}
        for name, rows in each.items():
            size, chosen = int(rows.sum()), ("accuracy", "loss")
            some = (labels[rows], logits[rows], losses[rows])
            right = int((some[1].argmax(axis=1) == some[0]).sum())
            drawn = resampled(measures(*some, only=chosen), size, draws_for(size), seed)
            made[column][name] = {
                "examples": size, "correct": right, "accuracy": right / size,
                "loss": float(some[2].astype(np.float64).mean()),
                "intervals": {metric: interval(values) for metric, values in drawn.items()},
            }  # fmt: skip
    return made
