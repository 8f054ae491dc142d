"""How good predictions are: exact counts first, ratios from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)


def score(labels: np.ndarray, predicted: np.ndarray, losses: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Metrics of a split, as JSON.

    Args:
        labels: int [N], the truth.
        predicted: int [N], the class with the greatest logit.
        losses: float32 [N], cross-entropy of each example.
        classes: Names by index.

    Returns:
        examples, correct, accuracy, loss (mean), confusion (rows are the truth), and for each class its support,
        precision, recall and F1 (0 where they are undefined, as with no prediction of a class).
    """
    index = np.arange(len(classes))
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted, labels=index, zero_division=0.0)  # pyright: ignore[reportArgumentType]
    correct = int((labels == predicted).sum())
    return {
        "examples": len(labels),
        "correct": correct,
        "accuracy": correct / len(labels),
        "loss": float(losses.astype(np.float64).mean()),
        "confusion": confusion_matrix(labels, predicted, labels=index).tolist(),
        "classes": {
            name: {
                "support": int(np.asarray(support)[i]),
                "precision": float(np.asarray(precision)[i]),
                "recall": float(np.asarray(recall)[i]),
                "f1": float(np.asarray(f1)[i]),
            }
            for i, name in enumerate(classes)
        },
    }


def ranking(labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """How well a model of two classes ranks examples, whatever the threshold; the second class is the one looked for.

    Args:
        labels: int [N], 0 or 1.
        logits: float32 [N, 2].

    Returns:
        roc_auc: the probability that an example of class 1 is ranked above one of class 0, ties counted half; pr_auc:
        average precision, the precision at each found example of class 1, averaged (Davis & Goadrich 2006 on why it is
        the one to look at when positives are rare). Empty if there are other than two classes, or one doesn't occur.
    """
    if logits.shape[1] != 2 or len(np.unique(labels)) != 2:
        return {}
    # In float64 and not through a softmax, where logits that are far apart would tie.
    margin = logits[:, 1].astype(np.float64) - logits[:, 0].astype(np.float64)
    return {
        "roc_auc": float(roc_auc_score(labels, margin)),
        "pr_auc": float(average_precision_score(labels, margin)),
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
