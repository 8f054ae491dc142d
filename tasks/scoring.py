"""How good predictions are: exact counts first, ratios from them, and an interval for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from tasks.calibration import calibration_error, calibration_measure, reliability
from tasks.intervals import CONFIDENCE, Measure, draws_for, interval, mean, resampled
from tasks.ranking import Areas, areas

if TYPE_CHECKING:
    from tasks.predictor import Predictions

SEED = 0
TOP = (2, 3, 5)


def score(labels: np.ndarray, logits: np.ndarray, losses: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Metrics of a split, as JSON.

    Args:
        labels: int [N], the truth.
        logits: float32 [N, classes].
        losses: float32 [N], cross-entropy of each example.
        classes: Names by index.

    Returns:
        examples, correct, accuracy, loss (mean), top_k and top_k_correct for each k below the number of classes,
        roc_auc and pr_auc where they are defined, ece with its bins (`calibration`), confusion (rows are the truth),
        and for each class its support, predicted (how often it was said), correct, precision, recall and F1 (0 where
        they are undefined, as with no prediction of a class). `intervals` and those in `classes` hold [low, high], or
        null where half of the draws leave the metric undefined; `bootstrap` says how they were made.
    """
    predicted = logits.argmax(axis=1)
    bins = reliability(logits, labels)
    correct = int((labels == predicted).sum())
    tops = {k: int(within(labels, logits, k).sum()) for k in tops_of(len(classes))}
    confusion = confusion_matrix(labels, predicted, labels=np.arange(len(classes)))
    number = draws_for(len(labels), len(classes))
    drawn = resampled(measures(labels, logits, losses), len(labels), number, SEED)
    return {
        "examples": len(labels),
        "correct": correct,
        "accuracy": correct / len(labels),
        "loss": float(losses.astype(np.float64).mean()),
        **{f"top_{k}_correct": count for k, count in tops.items()},
        **{f"top_{k}": count / len(labels) for k, count in tops.items()},
        **areas(labels, logits),
        "ece": calibration_error(bins),
        "calibration": bins,
        "confusion": confusion.tolist(),
        "classes": _classes(labels, predicted, confusion, classes, number),
        "intervals": {name: interval(values) for name, values in drawn.items()},
        "bootstrap": {"draws": number, "seed": SEED, "confidence": CONFIDENCE},
    }


def score_part(labels: np.ndarray, logits: np.ndarray, losses: np.ndarray, seed: int = SEED) -> dict[str, Any]:
    """examples, correct, accuracy and loss of a slice, with intervals; arguments as of `score`."""
    size, right = len(labels), int((logits.argmax(axis=1) == labels).sum())
    drawn = resampled(measures(labels, logits, losses, only=("accuracy", "loss")), size, draws_for(size), seed)
    return {
        "examples": size, "correct": right, "accuracy": right / size,
        "loss": float(losses.astype(np.float64).mean()),
        "intervals": {metric: interval(values) for metric, values in drawn.items()},
    }  # fmt: skip


def fewer_right(candidate: Predictions, champion: Predictions, rows: np.ndarray) -> dict[str, Any]:
    """How far the share of right answers lies below the champion's, from whole numbers; for the gate.

    Args:
        candidate: Its answers.
        champion: Its answers to the same examples.
        rows: bool [N], those that count.
    """
    size = int(rows.sum())
    now, before = (int((m.predicted == m.labels)[rows].sum()) for m in (candidate, champion))
    # Rounded, so that a fall of exactly the limit passes.
    return {"got": round((before - now) / size, 12), "candidate_correct": now, "champion_correct": before}


def tops_of(classes: int) -> tuple[int, ...]:
    """The k for which top-k says something."""
    return tuple(k for k in TOP if k < classes)


def within(labels: np.ndarray, logits: np.ndarray, k: int) -> np.ndarray:
    """Whether the truth is among the k greatest logits, bool [N]; of equal ones the first counts, as for k = 1."""
    own = logits[np.arange(len(labels)), labels][:, None]
    first = np.arange(logits.shape[1]) < labels[:, None]
    return ((logits > own) | ((logits == own) & first)).sum(axis=1) < k


def measures(
    labels: np.ndarray, logits: np.ndarray, losses: np.ndarray, only: Collection[str] | None = None
) -> dict[str, Measure]:
    """The metrics that are one number, for draws of the examples.

    Args:
        labels: int [N].
        logits: float [N, classes].
        losses: float [N].
        only: Names of those wanted; all that are defined if None.
    """
    makers: dict[str, Callable[[], Measure]] = {
        "accuracy": lambda: mean(logits.argmax(axis=1) == labels),
        "loss": lambda: mean(losses),
        **{f"top_{k}": partial(_top, labels, logits, k) for k in tops_of(logits.shape[1])},
        "ece": lambda: calibration_measure(logits, labels),
    }
    made = {name: make() for name, make in makers.items() if only is None or name in only}
    if only is None or {"roc_auc", "pr_auc"} & set(only):
        ranks = Areas(labels, logits).measures()
        made |= {name: measure for name, measure in ranks.items() if only is None or name in only}
    return made


def _top(labels: np.ndarray, logits: np.ndarray, k: int) -> Measure:
    return mean(within(labels, logits, k))


def _classes(
    labels: np.ndarray, predicted: np.ndarray, confusion: np.ndarray, classes: Sequence[str], number: int
) -> dict[str, Any]:
    index = np.arange(len(classes))
    precision, recall, f1, support = (
        np.asarray(each)
        for each in precision_recall_fscore_support(labels, predicted, labels=index, zero_division=0.0)  # pyright: ignore[reportArgumentType]
    )
    drawn = _drawn_classes(confusion, number)
    return {
        name: {
            "support": int(support[i]),
            "predicted": int(confusion[:, i].sum()),
            "correct": int(confusion[i, i]),
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "intervals": {metric: interval(values[:, i]) for metric, values in drawn.items()},
        }
        for i, name in enumerate(classes)
    }


def _drawn_classes(confusion: np.ndarray, number: int) -> dict[str, np.ndarray]:
    """Precision, recall and F1 of each class, float [draws, classes].

    To draw examples and count them by truth and prediction is to draw the counts from a multinomial distribution.
    """
    truth, said = np.nonzero(confusion)
    cells = confusion[truth, said]
    counts = np.random.default_rng(SEED).multinomial(cells.sum(), cells / cells.sum(), size=number).astype(np.float64)

    def sums(of: np.ndarray, which: np.ndarray) -> np.ndarray:
        made = np.zeros((number, len(confusion)))
        for k in np.unique(of[which]):
            made[:, k] = counts[:, which & (of == k)].sum(axis=1)
        return made

    every = np.ones(len(cells), bool)
    right, support, predicted = sums(truth, truth == said), sums(truth, every), sums(said, every)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "precision": right / predicted,
            "recall": right / support,
            "f1": 2 * right / (support + predicted),
        }


def mcnemar(labels: np.ndarray, candidate: np.ndarray, champion: np.ndarray) -> dict[str, Any]:
    """Whether a candidate is better than a champion on the same examples, by the exact one-sided McNemar test.

    Only examples on which exactly one of the two is right tell them apart; if neither were better, each would win such
    an example with probability 1/2 (McNemar 1947, Psychometrika 12).

    Args:
        labels: int [N], the truth.
        candidate: int [N], its predictions.
        champion: int [N], its predictions.

    Returns:
        wins and losses of the candidate, and p: the probability of so many wins or more between equals.
    """
    wins = int(((candidate == labels) & (champion != labels)).sum())
    losses = int(((candidate != labels) & (champion == labels)).sum())
    p = float(binomtest(wins, wins + losses, 0.5, alternative="greater").pvalue) if wins + losses else 1.0
    return {"wins": wins, "losses": losses, "p": p}
