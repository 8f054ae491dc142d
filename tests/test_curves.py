from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tasks import curves
from tasks.curves import gradients, overlaid, series, smooth, speed

ROWS: list[dict[str, Any]] = [
    {"step": 0, "loss": 2.0, "grad_norm": 1.0, "learning_rate": 0.1},
    {"step": 1, "skipped": "loss", "records": [3]},
    {"step": 2, "loss": 1.0, "grad_norm": 0.5, "learning_rate": 0.05},
    {"step": 2, "test_loss": 0.5, "test_accuracy": 0.75},
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    png = curves.png
    monkeypatch.setattr(curves, "png", lambda figure: drawn.append(figure) or png(figure))
    return drawn


def lines(figure: Figure) -> list[list[Any]]:
    return [[np.column_stack(line.get_data()).tolist() for line in axes.get_lines()] for axes in figure.axes]


def test_gradients_and_rates_leave_out_what_was_skipped_and_mark_it(figures: list[Figure]) -> None:
    picture = gradients(ROWS)
    assert Image.open(io.BytesIO(picture)).size[0] > 300
    (norm, mark), (rate,) = lines(figures[0])
    assert norm == [[0, 1.0], [2, 0.5]]
    assert [x for x, _ in mark] == [1, 1]
    assert rate == [[0, 0.1], [2, 0.05]]
    assert "1 skipped" in figures[0].axes[0].get_title()


def test_speed_shows_both_and_starts_at_zero(figures: list[Figure]) -> None:
    speed([{"step": 24, "seconds": 1.0, "examples_per_second": 100.0, "input_wait": 0.25},
           {"step": 49, "seconds": 4.0, "examples_per_second": 200.0, "input_wait": 0.5}])  # fmt: skip
    (rate, mean_rate), (wait, mean_wait) = lines(figures[0])
    assert rate == [[24, 100.0], [49, 200.0]]
    assert mean_rate == [[24, 100.0], [49, 175.0]]
    assert wait == [[24, 25.0], [49, 50.0]]
    assert mean_wait == [[24, 25.0], [49, 43.75]]
    assert all(axes.get_ylim()[0] == 0 for axes in figures[0].axes)


def test_runs_lie_over_each_other_with_their_names_as_text(figures: list[Figure]) -> None:
    overlaid({"$a$": ROWS, "b": [], "c": ROWS[:1]})
    train, loss, accuracy = lines(figures[0])
    assert train == [[[0, 2.0], [2, 1.0]], [], [[0, 2.0]]]
    assert loss == [[[2, 0.5]], [], []]
    assert accuracy == [[[2, 0.75]], [], []]
    texts = figures[0].legends[0].get_texts()
    assert [text.get_text() for text in texts] == ["$a$", "b", "c"]
    assert not any(text.get_parse_math() for text in texts)
    colours = [line.get_color() for line in figures[0].axes[0].get_lines()]
    assert len(set(colours)) == 3


def test_equal_data_gives_equal_bytes() -> None:
    assert overlaid({"a": ROWS}) == overlaid({"a": ROWS})


def test_the_mean_stands_at_the_end_of_its_window() -> None:
    steps, values = smooth(*series([{"step": i, "loss": float(i)} for i in range(100)], "loss"))
    assert (steps[0], values[0], len(values)) == (1, 0.5, 99)
    np.testing.assert_array_equal(values, np.arange(99) + 0.5)
