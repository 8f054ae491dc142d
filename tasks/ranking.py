"""How well scores rank examples, whatever the threshold: the areas under the ROC and the precision-recall curve.

scikit-learn gives the figures themselves; here are the same areas of weighted examples for a thousand draws at once.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from tasks.intervals import Measure


def log_odds(logits: np.ndarray) -> np.ndarray:
    """Logarithm of p / (1 - p) of each class, float64 [N, classes].

    It ranks as the probability does, but doesn't tie where that rounds to 1.
    """
    z = logits.astype(np.float64)
    rows, top = np.arange(len(z)), z.argmax(axis=1)
    powers = np.exp(z - z[rows, top][:, None])
    odds = z - z[rows, top][:, None] - np.log(powers.sum(axis=1, keepdims=True) - powers + _one(top, z.shape))
    # Of the greatest, the sum of the others would be a difference of nearly equal numbers.
    others = np.where(_one(top, z.shape) > 0, -np.inf, z)
    second = others.max(axis=1)
    odds[rows, top] = z[rows, top] - second - np.log(np.exp(others - second[:, None]).sum(axis=1))
    return odds


def _one(index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    made = np.zeros(shape)
    made[np.arange(len(index)), index] = 1
    return made


def sides(labels: np.ndarray, classes: int) -> list[int]:
    """Classes that are held against the rest: the second of two, else all; those that have examples on both sides."""
    counts = np.bincount(labels, minlength=classes)
    looked_for = [1] if classes == 2 else range(classes)
    return [k for k in looked_for if 0 < counts[k] < len(labels)]


def areas(labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """ROC-AUC and PR-AUC; of more than two classes, the mean over one class against the rest (macro average).

    Args:
        labels: int [N].
        logits: float [N, classes].

    Returns:
        roc_auc: the probability that an example of the class is ranked above another, ties counted half; pr_auc:
        average precision (Davis & Goadrich 2006 on why to look at it when positives are rare). Empty if no class has
        examples on both sides.
    """
    scores, looked_for = log_odds(logits), sides(labels, logits.shape[1])
    if not looked_for:
        return {}
    of_each = [(labels == k, scores[:, k]) for k in looked_for]
    return {
        "roc_auc": float(np.mean([roc_auc_score(truth, score) for truth, score in of_each])),
        "pr_auc": float(np.mean([average_precision_score(truth, score) for truth, score in of_each])),
    }


class Areas:
    """Both areas of many draws, as measures.

    Args:
        labels: int [N].
        logits: float [N, classes].
    """

    def __init__(self, labels: np.ndarray, logits: np.ndarray) -> None:
        scores = log_odds(logits)
        self._sides = [_Side(labels == k, scores[:, k]) for k in sides(labels, logits.shape[1])]
        self._last: tuple[np.ndarray | None, np.ndarray] = (None, np.zeros(0))

    def measures(self) -> dict[str, Measure]:
        """By name; none if no class has examples on both sides."""
        if not self._sides:
            return {}
        return {"roc_auc": lambda counts: self._means(counts)[0], "pr_auc": lambda counts: self._means(counts)[1]}

    def _means(self, counts: np.ndarray) -> np.ndarray:
        if self._last[0] is not counts:  # the two measures are asked one after the other
            turned = np.ascontiguousarray(counts.T)  # an example a row: whole rows are moved and added
            both = np.stack([side(turned) for side in self._sides])  # [sides, 2, draws]; NaN where a side is missing
            known = np.isfinite(both)
            with np.errstate(invalid="ignore"):
                self._last = counts, np.where(known, both, 0).sum(axis=0) / known.sum(axis=0)
        return self._last[1]


class _Side:
    """One class against the rest. Examples of equal score are a group; groups that hold no positive are merged."""

    def __init__(self, truth: np.ndarray, scores: np.ndarray) -> None:
        self._order = np.argsort(-scores, kind="stable")
        ranked, positive = scores[self._order], truth[self._order]
        group = np.concatenate([[0], np.cumsum(ranked[1:] != ranked[:-1])])
        holds = np.bincount(group, weights=positive) > 0
        first = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])
        alone = holds.copy()
        alone[1:] |= holds[:-1]
        alone[0] = True
        self._starts, self._holding = first[alone], np.flatnonzero(holds[alone])
        self._positive = self._order[positive]
        self._positive_starts = np.flatnonzero(np.diff(group[positive], prepend=-1))

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        """From counts float32 [N, draws] to ROC-AUC and average precision, float64 [2, draws]."""
        total = np.add.reduceat(counts[self._order], self._starts, axis=0)
        here = np.add.reduceat(counts[self._positive], self._positive_starts, axis=0)
        reached = total.cumsum(axis=0, dtype=np.float64)[self._holding]
        found = here.cumsum(axis=0, dtype=np.float64)
        positives = found[-1]
        negatives = len(counts) - positives
        tied = total[self._holding] - here
        with np.errstate(invalid="ignore", divide="ignore"):
            below = negatives - (reached - found) + tied / 2
            roc = (here * below).sum(axis=0) / (positives * negatives)
            precision = np.where(reached > 0, found / reached, 0)
            return np.stack([roc, (here * precision).sum(axis=0) / positives])
