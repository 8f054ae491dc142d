"""How answers are judged: by classes, or as numbers where the label has none. This file alone tells them apart.

One function for each question, so that a stage's key holds the code of what it asks and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tasks import regression, scoring
from tasks.intervals import Measure

if TYPE_CHECKING:
    from tasks.predictor import Predictions

Figures = Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, Any]]
"""From labels [N], outputs [N, outputs] and losses [N] to JSON."""
Fall = Callable[["Predictions", "Predictions", np.ndarray], dict[str, Any]]
"""From answers of candidate and champion, and which examples count, to how far the candidate is worse ("got")."""


class Measures(Protocol):
    """Metrics for draws of the examples; see `scoring.measures`."""

    def __call__(
        self, labels: np.ndarray, logits: np.ndarray, losses: np.ndarray, /, only: Collection[str] | None = None
    ) -> dict[str, Measure]:
        """By name; all that are defined, or those of `only`."""
        ...


def score_of(classes: Sequence[str]) -> Figures:
    """What gives the metrics of a split."""
    if not classes:
        return regression.score
    return lambda labels, logits, losses: scoring.score(labels, logits, losses, classes)


def part_of(classes: Sequence[str]) -> Figures:
    """What gives the metrics of a slice."""
    return scoring.score_part if classes else regression.score_part


def measures_of(classes: Sequence[str]) -> Measures:
    """What gives metrics for draws of the examples."""
    return scoring.measures if classes else regression.measures


def fall_of(classes: Sequence[str]) -> Fall:
    """What says how far a slice falls."""
    return scoring.fewer_right if classes else regression.rise


def mistakes_of(classes: Sequence[str]) -> Callable[..., list[dict[str, Any]]]:
    """What gives the worst mistakes, from labels, outputs, losses and origins."""
    from tasks.mistakes import mistakes

    if not classes:
        return regression.mistakes
    return lambda labels, logits, losses, origin: mistakes(labels, logits, losses, classes, origin)


def drawn(classes: Sequence[str], metrics: Mapping[str, Any], labels: np.ndarray, outputs: np.ndarray) -> bytes:
    """The plot of what was said against what is true, PNG."""
    from tasks import plots

    if not classes:
        return plots.predicted_true(labels, outputs[:, 0])
    return plots.confusion_matrix(np.array(metrics["confusion"]), classes)
