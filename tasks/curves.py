"""Plots of how trainings went: gradients and learning rate, speed and waiting, several runs in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tasks.plots import BESIDE, beside, png

COLOURS = ("#27548a", "#c2571a", "#3a7d44", "#8a4f9e", "#b8860b", "#4c8c9a", "#a33b4a", "#6b6b6b")

Rows = Sequence[Mapping[str, Any]]


def gradients(history: Rows) -> bytes:
    """Norm of the gradient and learning rate of every step, as PNG; steps that were skipped are marked.

    Args:
        history: Rows of the metric log.
    """
    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*series(history, "grad_norm"), color=COLOURS[0], linewidth=0.8)
    skipped = [row["step"] for row in history if "skipped" in row]
    for step in skipped:
        left.axvline(step, color=COLOURS[1], linewidth=0.8)
    left.set(xlabel="step", yscale="log")
    left.set_title("norm of the gradient" + (f", {len(skipped)} skipped" if skipped else ""), fontsize=10)
    right.plot(*series(history, "learning_rate"), color=COLOURS[2])
    right.set(xlabel="step")
    right.set_title("learning rate", fontsize=10)
    return _with_grid(figure)


def speed(times: Rows) -> bytes:
    """Examples a second and share of the time spent waiting for input, as PNG.

    Dots are what was measured from look to look, where the device may run behind the host; the line is the mean since
    the start.

    Args:
        times: Rows of `times.parquet`.
    """
    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    seconds = series(times, "seconds")[1]
    spent = np.diff(seconds, prepend=0.0)
    for axes, name, factor, colour, title in (
        (left, "examples_per_second", 1, COLOURS[0], "examples/s"),
        (right, "input_wait", 100, COLOURS[1], "waiting for input, % of time"),
    ):
        steps, values = series(times, name)
        mean = np.cumsum(values * spent) / np.maximum(seconds, 1e-9)
        axes.plot(steps, factor * values, ".", color=colour, alpha=0.5)
        axes.plot(steps, factor * mean, color=colour)
        axes.set(xlabel="step", ylim=(0, None))
        axes.set_title(f"{title} (line: mean so far)", fontsize=9)
    return _with_grid(figure)


def overlaid(runs: Mapping[str, Rows]) -> bytes:
    """Train loss (running mean), test loss and what is evaluated beside it of several runs, as PNG.

    Args:
        runs: Rows of the metric log by the name of the run.
    """
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    train, loss, second = figure.subplots(1, 3)
    names = dict.fromkeys(beside(history) for history in runs.values())
    for at, history in enumerate(runs.values()):
        colour = COLOURS[at % len(COLOURS)]
        train.plot(*smooth(*series(history, "loss")), color=colour)
        loss.plot(*series(history, "test_loss"), "o-", markersize=3, color=colour)
        second.plot(*series(history, f"test_{beside(history)}"), "o-", markersize=3, color=colour)
    shown = " or ".join(f"test {BESIDE[name][0]}" for name in names)
    for axes, title in ((train, "train loss, running mean"), (loss, "test loss"), (second, shown)):
        axes.set(xlabel="step")
        axes.set_title(title, fontsize=10)
    for axes in (train, loss):
        axes.set(yscale="log")
    figure.legend([*_handles(train)], [*runs], loc="outside lower center", ncols=min(len(runs), 3), fontsize=8)
    for text in figure.legends[0].get_texts():
        text.set_parse_math(False)  # a name is text
    return _with_grid(figure)


def series(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values, float64 [N] each, of the rows that have one."""
    known = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    steps, values = np.array(known, np.float64).reshape(-1, 2).T
    return steps, values


def smooth(steps: np.ndarray, values: np.ndarray, parts: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """The running mean over a fiftieth of the steps, each at the last step of its window."""
    width = max(1, len(values) // parts)
    return steps[width - 1 :], np.convolve(values, np.ones(width) / width, "valid") if len(values) else values


def _handles(axes: Axes) -> list[Any]:
    return list(axes.get_lines())


def _with_grid(figure: Figure) -> bytes:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    return png(figure)
