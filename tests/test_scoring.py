from __future__ import annotations

import json
import math

import numpy as np
import pytest

from datasets.gate import Gate
from tasks.scoring import mcnemar, measures, score, within

ABC = ("a", "b", "c")


def said(predicted: np.ndarray, classes: int = 3) -> np.ndarray:
    """Logits of these answers."""
    return np.eye(classes, dtype=np.float32)[predicted]


def test_metrics_of_a_case_counted_by_hand() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    predicted = np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2])
    made = score(labels, said(predicted), np.arange(10, dtype=np.float32), ABC)
    assert (made["examples"], made["correct"], made["accuracy"], made["loss"]) == (10, 7, 0.7, 4.5)
    assert made["confusion"] == [[2, 1, 1], [1, 2, 0], [0, 0, 3]]
    without = {name: {k: v for k, v in row.items() if k != "intervals"} for name, row in made["classes"].items()}
    assert without == {
        "a": {"support": 4, "predicted": 3, "correct": 2, "precision": pytest.approx(2 / 3), "recall": 0.5,
              "f1": pytest.approx(4 / 7)},
        "b": {"support": 3, "predicted": 3, "correct": 2, "precision": pytest.approx(2 / 3),
              "recall": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)},
        "c": {"support": 3, "predicted": 4, "correct": 3, "precision": 0.75, "recall": 1.0, "f1": pytest.approx(6 / 7)},
    }  # fmt: skip
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_every_metric_has_an_interval_that_holds_it() -> None:
    random = np.random.default_rng(0)
    labels, logits = random.integers(0, 6, 500), random.normal(size=(500, 6)).astype(np.float32)
    logits[np.arange(500), labels] += 1.5
    losses = random.random(500).astype(np.float32)
    made = score(labels, logits, losses, "abcdef")
    assert set(made["intervals"]) == {
        "accuracy", "loss", "top_2", "top_3", "top_5", "roc_auc", "pr_auc", "ece",
    }  # fmt: skip
    for name, (low, high) in made["intervals"].items():
        assert low < high
        assert low <= made[name] <= high or name == "ece"
    for row in made["classes"].values():
        for name, (low, high) in row["intervals"].items():
            assert low < row[name] < high
    half = 1.96 * np.sqrt(made["accuracy"] * (1 - made["accuracy"]) / 500)
    assert made["intervals"]["accuracy"] == pytest.approx([made["accuracy"] - half, made["accuracy"] + half], abs=0.008)
    recall, support = made["classes"]["a"]["recall"], made["classes"]["a"]["support"]
    half = 1.96 * np.sqrt(recall * (1 - recall) / support)
    assert made["classes"]["a"]["intervals"]["recall"] == pytest.approx([recall - half, recall + half], abs=0.02)
    assert score(labels, logits, losses, "abcdef") == made


def test_the_measures_of_all_examples_are_the_metrics() -> None:
    random = np.random.default_rng(0)
    labels, logits = random.integers(0, 4, 200), random.normal(size=(200, 4)).astype(np.float32)
    losses = random.random(200).astype(np.float32)
    made, one = score(labels, logits, losses, "abcd"), np.ones((1, 200), np.float32)
    found = {name: measure(one)[0] for name, measure in measures(labels, logits, losses).items()}
    assert found == {name: pytest.approx(made[name], abs=1e-6) for name in made["intervals"]}
    assert set(measures(labels, logits, losses, only={"loss", "pr_auc"})) == {"loss", "pr_auc"}


def test_top_k_is_the_argmax_for_1_and_everything_for_all() -> None:
    random = np.random.default_rng(0)
    labels, logits = random.integers(0, 5, 300), np.round(random.normal(size=(300, 5))).astype(np.float32)
    np.testing.assert_array_equal(within(labels, logits, 1), logits.argmax(axis=1) == labels)
    assert within(labels, logits, 5).all()
    assert within(np.array([2, 0]), np.array([[3, 2, 1], [1, 2, 3]]), 2).tolist() == [False, False]
    assert within(np.array([1, 1]), np.array([[3, 2, 1], [1, 2, 3]]), 2).tolist() == [True, True]
    made = score(labels, logits, np.zeros(300, np.float32), "abcde")
    assert made["top_2"] == made["top_2_correct"] / 300 == within(labels, logits, 2).mean()
    assert "top_5" not in made


def test_a_model_that_always_says_0_shows_it() -> None:
    labels = np.array([0] * 995 + [1] * 3 + [2] * 2)
    made = score(labels, said(np.zeros(1000, int)), np.zeros(1000, np.float32), ABC)
    assert made["accuracy"] == 0.995
    assert [row["recall"] for row in made["classes"].values()] == [1.0, 0.0, 0.0]
    assert [row["support"] for row in made["classes"].values()] == [995, 3, 2]
    assert [row["precision"] for row in made["classes"].values()] == [0.995, 0.0, 0.0]
    assert made["classes"]["b"]["intervals"]["precision"] is None  # never said, in no draw


def test_a_class_that_occurs_nowhere_has_its_row() -> None:
    made = score(np.array([0, 1]), said(np.array([0, 1])), np.zeros(2, np.float32), ABC)
    row = {name: value for name, value in made["classes"]["c"].items() if name != "intervals"}
    assert row == {"support": 0, "predicted": 0, "correct": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert np.array(made["confusion"]).shape == (3, 3)


def test_the_mean_loss_does_not_lose_small_terms() -> None:
    losses = np.full(20_000, 0.1, np.float32)
    losses[0] = 1e8
    labels = np.arange(20_000) % 2
    made = score(labels, said(labels, 2), losses, ("a", "b"))
    assert made["loss"] == pytest.approx((1e8 + 19_999 * float(np.float32(0.1))) / 20_000, rel=1e-12)


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
    promoted = sum(mcnemar(labels, a, b)["p"] <= Gate().level for a, b in zip(candidates, champions, strict=True))
    assert promoted <= 0.05 * 400


def test_a_better_model_is_found() -> None:
    random = np.random.default_rng(0)
    labels = np.zeros(1000, int)
    found = [
        mcnemar(labels, (random.random(1000) >= 0.98).astype(int), (random.random(1000) >= 0.95).astype(int))["p"]
        for _ in range(50)
    ]
    assert sum(p <= Gate().level for p in found) >= 45
