"""A look at the data: the first pictures of each class of the train split, in one grid."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from datasets.schema import Dataset
from tasks.mistakes import is_picture
from tasks.records import Shards

MOST = 24
ACROSS = 8


def grid(shards: Shards, dataset: Dataset) -> bytes | None:
    """A PNG of up to MOST pictures, class by class, as many of each; None if examples are no pictures with a class.

    Args:
        shards: Of the train split; only the first block is read.
        dataset: Says what its columns are.
    """
    from tasks.plots import pictures

    label = dataset.features[dataset.label]
    seen = dataset.features.get(dataset.inputs) if isinstance(dataset.inputs, str) else None
    if seen is None or not is_picture(seen):  # several inputs, or columns that are put side by side later
        return None
    if label.shape or not label.classes:  # several labels, or one that is fitted later
        return None
    block = next(iter(shards.blocks()))
    rows = chosen(block[dataset.label], max(1, MOST // len(label.classes)))
    names = [label.classes[at] for at in block[dataset.label][rows]]
    return pictures(block[dataset.inputs][rows], names, across=ACROSS)


def chosen(labels: np.ndarray, each: int) -> list[int]:
    """The first `each` rows of every class, class by class, MOST in all.

    Args:
        labels: int [rows].
        each: Of a class.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(labels.tolist()):
        if len(found[label]) < each:
            found[label].append(row)
    return [row for _, rows in sorted(found.items()) for row in rows][:MOST]
