from __future__ import annotations

import numpy as np
import pytest

from tasks.calibration import BINS, calibration_error, calibration_measure, probabilities, reliability


def logits_of(confidence: list[float]) -> np.ndarray:
    """Logits of two classes, of which the second has this probability."""
    p = np.array(confidence)
    return np.stack([np.zeros(len(p)), np.log(p / (1 - p))], axis=1).astype(np.float32)


def test_probabilities_do_not_overflow() -> None:
    np.testing.assert_allclose(probabilities(np.array([[1e5, 0], [-1e5, 0]], np.float32)), [[1, 0], [0, 1]])


def test_bins_and_error_counted_by_hand() -> None:
    logits = logits_of([0.61, 0.62, 0.92, 0.91, 0.90])
    labels = np.array([1, 0, 1, 1, 0])
    first, second = reliability(logits, labels)
    assert (first["examples"], first["correct"], first["confidence"]) == (2, 1, pytest.approx(0.615))
    assert (first["low"], first["high"]) == (9 / BINS, 10 / BINS)
    assert (second["examples"], second["correct"], second["confidence"]) == (3, 2, pytest.approx(0.91))
    expected = (2 * abs(0.615 - 0.5) + 3 * abs(0.91 - 2 / 3)) / 5
    assert calibration_error([first, second]) == pytest.approx(expected)


def test_certainty_has_a_bin() -> None:
    rows = reliability(np.array([[1000, 0]], np.float32), np.array([0]))
    assert [(row["high"], row["examples"], row["confidence"]) for row in rows] == [(1.0, 1, 1.0)]
    assert calibration_error(rows) == 0


def test_the_error_of_a_draw_is_that_of_its_examples() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(0, 2, (200, 3)).astype(np.float32), random.integers(0, 3, 200)
    measure = calibration_measure(logits, labels)
    picked = random.integers(0, 200, (5, 200))
    counts = np.stack([np.bincount(row, minlength=200) for row in picked]).astype(np.float32)
    expected = [calibration_error(reliability(logits[row], labels[row])) for row in picked]
    np.testing.assert_allclose(measure(counts), expected, atol=1e-6)


def test_a_model_as_sure_as_it_is_right_has_a_small_error() -> None:
    random = np.random.default_rng(0)
    confidence = random.uniform(0.5, 1, 20_000)
    right = random.random(20_000) < confidence
    good = calibration_error(reliability(logits_of(confidence.tolist()), right.astype(int)))
    sure = calibration_error(reliability(2 * logits_of(confidence.tolist()), right.astype(int)))
    assert good < 0.015
    assert sure > 0.08
