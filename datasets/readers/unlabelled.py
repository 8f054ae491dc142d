"""Reading rows whose label nobody knows yet: the label's column isn't looked for, and holds zeros that mean nothing.

A reader of one's own asks `left_out(name)` before it looks for a label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from datasets.schema import Feature

_LABEL: ContextVar[str | None] = ContextVar("unlabelled", default=None)


@contextmanager
def without_label(name: str) -> Iterator[None]:
    """Within it, readers leave the feature of this name out, whether the raw data has it or not."""
    token = _LABEL.set(name)
    try:
        yield
    finally:
        _LABEL.reset(token)


def left_out(name: str) -> bool:
    """Whether a feature isn't read now."""
    return _LABEL.get() == name


def looked_for(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """The features that are read now."""
    return {name: feature for name, feature in features.items() if not left_out(name)}


def stand_in(feature: Feature, rows: int) -> np.ndarray:
    """What is in the place of a column that isn't read: zeros [rows, *feature.shape]."""
    return np.zeros((rows, *feature.shape), feature.dtype)
