from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tasks import plots
from tasks.plots import confusion_matrix, feed_ratios, feed_settings, loss_curve, pictures, predicted_true


def history(steps: int, epoch: int = 10) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        rows.append({"step": step, "loss": 2.0 / (step + 1)})
        if (step + 1) % epoch == 0:
            rows.append({"step": step, "test_loss": 0.5, "test_accuracy": 0.8})
    return rows


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    png = plots.png
    monkeypatch.setattr(plots, "png", lambda figure: drawn.append(figure) or png(figure))
    return drawn


def shown(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def test_the_loss_curve_shows_every_step_and_every_evaluation(figures: list[Figure]) -> None:
    loss_curve(history(200))
    left, right = figures[0].axes
    each, mean, test = left.get_lines()
    np.testing.assert_array_equal(each.get_xdata(), np.arange(200))
    np.testing.assert_allclose(np.asarray(each.get_ydata()), 2.0 / np.arange(1, 201))
    np.testing.assert_array_equal(mean.get_xdata(), np.arange(3, 200))
    assert np.asarray(mean.get_ydata())[0] == pytest.approx(2.0 * (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    np.testing.assert_array_equal(test.get_xdata(), np.arange(9, 200, 10))
    np.testing.assert_array_equal(right.get_lines()[0].get_ydata(), [0.8] * 20)


@pytest.mark.parametrize("steps", [1, 3, 49, 1000])
def test_a_loss_curve_of_any_length_is_a_picture(steps: int) -> None:
    assert np.ptp(shown(loss_curve(history(steps)))) > 0


def test_equal_data_gives_equal_bytes() -> None:
    counts = np.array([[5, 1], [0, 4]])
    assert loss_curve(history(30)) == loss_curve(history(30))
    assert loss_curve(history(30)) != loss_curve(history(31))
    assert confusion_matrix(counts, "ab") == confusion_matrix(counts, "ab")
    assert confusion_matrix(counts, "ab") != confusion_matrix(counts.T, "ab")


def test_the_confusion_matrix_has_the_truth_in_its_rows(figures: list[Figure]) -> None:
    confusion_matrix(np.array([[8, 2], [0, 5]]), ("cat", "dog"))
    (axes,) = figures[0].axes
    texts = {tuple(map(float, text.get_position())): text.get_text() for text in axes.texts}
    assert texts == {(0.0, 0.0): "8", (1.0, 0.0): "2", (1.0, 1.0): "5"}  # x is the prediction; 0 isn't written
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "truth")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), [[0.8, 0.2], [0, 1]])


def test_a_class_without_examples_is_no_division_by_zero() -> None:
    with np.errstate(all="raise"):
        confusion_matrix(np.array([[0, 0], [1, 3]]), "ab")


@pytest.mark.parametrize("name", ["$5-$10", "$x^$", "100 %", "a_b", "\\frac", ""])
def test_a_class_may_have_any_name(figures: list[Figure], name: str) -> None:
    confusion_matrix(np.eye(2, dtype=int), (name, "other class"))
    assert [label.get_text() for label in figures[0].axes[0].get_xticklabels()] == [name, "other class"]
    assert not [label for label in figures[0].axes[0].get_xticklabels() if label.get_parse_math()]


def test_a_hundred_classes_are_drawn_without_numbers(figures: list[Figure]) -> None:
    confusion_matrix(np.eye(100, dtype=int), [str(i) for i in range(100)])
    assert not figures[0].axes[0].texts


def test_the_settings_of_the_feed_show_their_rates_and_the_chosen_one(figures: list[Figure]) -> None:
    content = feed_settings(["0 threads", "1 threads", "2 workers"], [100.0, 1234.0, None], 1)
    (axes,) = figures[0].axes
    assert [bar.get_width() for bar in axes.patches] == [100.0, 1234.0, 0.0]  # type: ignore[attr-defined]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] == colors[2] != colors[1]
    assert [text.get_text() for text in axes.texts] == ["100", "1,234", "not tried"]
    assert "chosen: 1 threads" in axes.get_title()
    assert shown(content).std() > 0


def test_ratios_to_peers_stand_on_a_logarithmic_axis_with_spread_and_goal(figures: list[Figure]) -> None:
    feed_ratios(["limit", "a peer"], [0.95, 120.0], [(0.8, 1.1), (90.0, 300.0)], [0.9, None], "MNIST-sized")
    (axes,) = figures[0].axes
    assert axes.get_xscale() == "log"
    assert [bar.get_width() for bar in axes.patches] == [0.95, 120.0]  # type: ignore[attr-defined]
    (spread,) = axes.collections
    assert [line[:, 0].tolist() for line in spread.get_segments()] == [[0.8, 1.1], [90.0, 300.0]]  # type: ignore[attr-defined]
    goal = next(line for line in axes.get_lines() if line.get_label() == "goal")
    assert np.asarray(goal.get_xydata()).tolist() == [[0.9, 0.0]]
    assert [text.get_text() for text in axes.texts] == ["0.95", "120"]
    assert axes.get_title() == "MNIST-sized"


def test_pictures_are_shown_as_they_are(figures: list[Figure]) -> None:
    grey = np.arange(7 * 4 * 5, dtype=np.uint8).reshape(7, 4, 5, 1)
    content = pictures(grey, [f"${i}$ said" for i in range(7)], across=3)
    assert np.ptp(shown(content)) > 0
    drawn = [axes for axes in figures[0].axes if axes.images]
    assert [axes.get_title() for axes in drawn] == [f"${i}$ said" for i in range(7)]
    np.testing.assert_array_equal(np.asarray(drawn[6].images[0].get_array()), grey[6, :, :, 0])
    assert drawn[0].images[0].get_clim() == (0, 255)


def test_pictures_of_other_numbers_are_stretched(figures: list[Figure]) -> None:
    colour = np.random.default_rng(0).normal(0, 9, (1, 3, 3, 3)).astype(np.float32)
    pictures(np.concatenate([colour, np.ones((1, 3, 3, 3), np.float32)]), ["a", "b"])
    first, second = (np.asarray(axes.images[0].get_array()) for axes in figures[0].axes if axes.images)
    assert (first.min(), first.max()) == (0, 1)
    assert np.ptp(second) == 0


def test_numbers_are_drawn_against_the_truth(figures: list[Figure]) -> None:
    truth = np.linspace(-1, 3, 12_000)
    predicted_true(truth, 2 * truth)
    dots, line = figures[0].axes[0].get_lines()
    np.testing.assert_array_equal(dots.get_ydata(), 2 * np.asarray(dots.get_xdata()))
    assert len(np.asarray(dots.get_xdata())) == 4000  # every third
    np.testing.assert_array_equal(line.get_xdata(), [-2, 6])
    np.testing.assert_array_equal(line.get_ydata(), [-2, 6])


def test_the_loss_of_a_number_is_called_by_its_name(figures: list[Figure]) -> None:
    loss_curve([{"step": 0, "loss": 2.0}, {"step": 0, "test_loss": 1.0, "test_mae": 0.7}])
    left, right = figures[0].axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("mean squared error", "mean absolute error")
    np.testing.assert_array_equal(right.get_lines()[0].get_ydata(), [0.7])
