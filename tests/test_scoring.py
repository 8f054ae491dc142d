from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tasks.promote import LEVEL
from tasks.scoring import mcnemar, ranking, score

ABC = ("a", "b", "c")


def test_metrics_of_a_case_counted_by_hand() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    predicted = np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2])
    made = score(labels, predicted, np.arange(10, dtype=np.float32), ABC)
    assert (made["examples"], made["correct"], made["accuracy"], made["loss"]) == (10, 7, 0.7, 4.5)
    assert made["confusion"] == [[2, 1, 1], [1, 2, 0], [0, 0, 3]]
    assert made["classes"] == {
        "a": {"support": 4, "precision": pytest.approx(2 / 3), "recall": 0.5, "f1": pytest.approx(4 / 7)},
        "b": {"support": 3, "precision": pytest.approx(2 / 3), "recall": pytest.approx(2 / 3),
              "f1": pytest.approx(2 / 3)},
        "c": {"support": 3, "precision": 0.75, "recall": 1.0, "f1": pytest.approx(6 / 7)},
    }  # fmt: skip
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_a_model_that_always_says_0_shows_it() -> None:
    labels = np.array([0] * 995 + [1] * 3 + [2] * 2)
    made = score(labels, np.zeros(1000, int), np.zeros(1000, np.float32), ABC)
    assert made["accuracy"] == 0.995
    assert [row["recall"] for row in made["classes"].values()] == [1.0, 0.0, 0.0]
    assert [row["support"] for row in made["classes"].values()] == [995, 3, 2]
    assert [row["precision"] for row in made["classes"].values()] == [0.995, 0.0, 0.0]


def test_a_class_that_occurs_nowhere_has_its_row() -> None:
    made = score(np.array([0, 1]), np.array([0, 1]), np.zeros(2, np.float32), ABC)
    assert made["classes"]["c"] == {"support": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert np.array(made["confusion"]).shape == (3, 3)


def test_the_mean_loss_does_not_lose_small_terms() -> None:
    losses = np.full(200_000, 0.1, np.float32)
    losses[0] = 1e8
    labels = np.arange(200_000) % 2
    made = score(labels, labels, losses, ("a", "b"))
    assert made["loss"] == pytest.approx((1e8 + 199_999 * float(np.float32(0.1))) / 200_000, rel=1e-12)


# ------------------------------------------------------------------------------------------------------------- McNemar


def pair(wins: int, losses: int, both: int = 20, neither: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, candidate and champion with so many examples on which only one of them is right."""
    candidate = np.array([1] * wins + [0] * losses + [1] * both + [2] * neither)
    champion = np.array([0] * wins + [1] * losses + [1] * both + [0] * neither)
    return np.ones(len(candidate), int), candidate, champion


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (4, 0), (10, 2), (2, 10), (59, 41), (7, 7), (121, 59)])
def test_p_is_the_tail_of_the_binomial_distribution(wins: int, losses: int) -> None:
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(wins, n + 1)) / 2**n
    assert mcnemar(*pair(wins, losses)) == {"wins": wins, "losses": losses, "p": pytest.approx(tail)}


def test_known_values() -> None:
    assert mcnemar(*pair(5, 0))["p"] == pytest.approx(1 / 32)
    assert mcnemar(*pair(4, 0))["p"] == pytest.approx(1 / 16)
    assert mcnemar(*pair(10, 2))["p"] == pytest.approx(79 / 4096)


def test_a_model_is_not_better_than_itself() -> None:
    labels, candidate, _ = pair(5, 3)
    assert mcnemar(labels, candidate, candidate) == {"wins": 0, "losses": 0, "p": 1.0}


def test_other_mistakes_on_the_same_example_tell_nothing() -> None:
    assert mcnemar(np.array([1]), np.array([0]), np.array([2])) == {"wins": 0, "losses": 0, "p": 1.0}


@pytest.mark.parametrize(("examples", "accuracy"), [(1000, 0.97), (200, 0.8)])
def test_two_equal_models_are_rarely_promoted(examples: int, accuracy: float) -> None:
    random = np.random.default_rng(0)
    labels = np.zeros(examples, int)
    candidates, champions = (random.random((2, 400, examples)) >= accuracy).astype(int)
    promoted = sum(mcnemar(labels, a, b)["p"] <= LEVEL for a, b in zip(candidates, champions, strict=True))
    assert promoted <= 0.05 * 400


def test_a_better_model_is_found() -> None:
    random = np.random.default_rng(0)
    labels = np.zeros(1000, int)
    found = [
        mcnemar(labels, (random.random(1000) >= 0.98).astype(int), (random.random(1000) >= 0.95).astype(int))["p"]
        for _ in range(50)
    ]
    assert sum(p <= LEVEL for p in found) >= 45


# ------------------------------------------------------------------------------------------------------------- ranking


def test_ranking_counted_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    margins = np.array([0.1, 0.7, 0.6, 0.8, 0.9])
    pairs = [(p > n) + 0.5 * (p == n) for p in margins[labels == 1] for n in margins[labels == 0]]
    made = ranking(labels, np.stack([-margins, margins], axis=1).astype(np.float32))
    assert made["roc_auc"] == pytest.approx(sum(pairs) / 6)
    assert made["pr_auc"] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)


def test_the_margin_counts_and_far_ones_do_not_tie() -> None:
    labels = np.array([0, 1, 0, 1])
    logits = np.array([[0, 200], [0, 300], [-150, 0], [500, 900]], np.float32)
    assert ranking(labels, logits) == {"roc_auc": 1.0, "pr_auc": 1.0}
    assert ranking(1 - labels, logits)["roc_auc"] == 0.0


@pytest.mark.parametrize(
    ("labels", "classes"), [(np.array([0, 1, 2]), 3), (np.array([0, 0, 0]), 2), (np.array([1, 1, 1]), 2)]
)
def test_no_ranking_without_two_classes(labels: np.ndarray, classes: int) -> None:
    assert ranking(labels, np.zeros((3, classes), np.float32)) == {}


def test_a_model_that_tells_nothing_is_at_chance() -> None:
    made = ranking(np.array([0] * 99 + [1]), np.zeros((100, 2), np.float32))
    assert made == {"roc_auc": 0.5, "pr_auc": pytest.approx(0.01)}
