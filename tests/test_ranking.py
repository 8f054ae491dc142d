from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from tasks.calibration import probabilities
from tasks.intervals import draws
from tasks.ranking import Areas, areas, log_odds


def test_areas_counted_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    margins = np.array([0.1, 0.7, 0.6, 0.8, 0.9])
    pairs = [(p > n) + 0.5 * (p == n) for p in margins[labels == 1] for n in margins[labels == 0]]
    made = areas(labels, np.stack([-margins, margins], axis=1).astype(np.float32))
    assert made["roc_auc"] == pytest.approx(sum(pairs) / 6)
    assert made["pr_auc"] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)


def test_the_margin_counts_and_far_ones_do_not_tie() -> None:
    labels = np.array([0, 1, 0, 1])
    logits = np.array([[0, 200], [0, 300], [-150, 0], [500, 900]], np.float32)
    assert areas(labels, logits) == {"roc_auc": 1.0, "pr_auc": 1.0}
    assert areas(1 - labels, logits)["roc_auc"] == 0.0


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [2, 2, 2]])
def test_nothing_is_ranked_where_there_is_one_class_only(labels: list[int]) -> None:
    classes = max(2, max(labels) + 1)
    assert areas(np.array(labels), np.zeros((3, classes), np.float32)) == {}
    assert Areas(np.array(labels), np.zeros((3, classes), np.float32)).measures() == {}


def test_a_model_that_tells_nothing_is_at_chance() -> None:
    made = areas(np.array([0] * 99 + [1]), np.zeros((100, 2), np.float32))
    assert made == {"roc_auc": 0.5, "pr_auc": pytest.approx(0.01)}


def test_of_several_classes_it_is_the_mean_of_one_against_the_rest() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 300)
    logits = random.normal(size=(300, 4)).astype(np.float32)
    logits[np.arange(300), labels] += 1
    made = areas(labels, logits)
    chance = probabilities(logits)
    assert made["roc_auc"] == pytest.approx(roc_auc_score(labels, chance, multi_class="ovr", average="macro"))
    each = [average_precision_score(labels == k, chance[:, k]) for k in range(4)]
    assert made["pr_auc"] == pytest.approx(np.mean(each))


def test_a_class_that_does_not_occur_is_left_out() -> None:
    labels = np.array([0, 0, 1, 1])
    logits = np.array([[3, 0, 1], [2, 0, 1], [0, 3, 1], [0, 1, 1]], np.float32)
    assert areas(labels, logits)["roc_auc"] == pytest.approx(1.0)


def test_log_odds_are_those_of_the_probabilities() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (50, 5)).astype(np.float32)
    p = probabilities(logits)
    np.testing.assert_allclose(log_odds(logits), np.log(p / (1 - p)), rtol=1e-9)
    far = log_odds(np.array([[200, 0, 0], [100, 0, 0]], np.float32))
    np.testing.assert_allclose(far[:, 0], [200 - np.log(2), 100 - np.log(2)])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rounded", [True, False], ids=["ties", "no ties"])
def test_areas_of_draws_are_scikit_learns_with_weights(classes: int, rounded: bool) -> None:
    random = np.random.default_rng(classes)
    labels = random.integers(0, classes, 120)
    logits = random.normal(0, 1.5, (120, classes)).astype(np.float32)
    logits = np.round(logits) if rounded else logits
    measures = Areas(labels, logits).measures()
    scores = log_odds(logits)
    looked_for = [1] if classes == 2 else range(classes)
    for counts in draws(120, 20, 0):
        roc, pr = measures["roc_auc"](counts), measures["pr_auc"](counts)
        for i, weights in enumerate(counts):
            of_each = [(labels == k, scores[:, k]) for k in looked_for]
            expected = np.mean([roc_auc_score(y, s, sample_weight=weights) for y, s in of_each])
            assert roc[i] == pytest.approx(expected, abs=1e-12)
            expected = np.mean([average_precision_score(y, s, sample_weight=weights) for y, s in of_each])
            assert pr[i] == pytest.approx(expected, abs=1e-12)


def test_a_draw_without_positives_is_undefined() -> None:
    measures = Areas(np.array([0, 0, 1]), np.array([[0, 0], [1, 0], [0, 1]], np.float32)).measures()
    counts = np.array([[2, 1, 0], [1, 1, 1], [0, 0, 3]], np.float32)
    np.testing.assert_array_equal(measures["roc_auc"](counts), [np.nan, 1.0, np.nan])
