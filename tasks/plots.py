"""Plots as PNG bytes; equal data gives equal bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

MOST_DOTS = 5000
BESIDE = {"accuracy": ("accuracy", "cross-entropy"), "mae": ("mean absolute error", "mean squared error")}
"""What is evaluated beside the loss: its name, and that of the loss."""


def beside(history: Sequence[Mapping[str, Any]]) -> str:
    """Which of BESIDE a metric log has; the first if it has no evaluation."""
    return next((name for name in BESIDE if any(f"test_{name}" in row for row in history)), next(iter(BESIDE)))


def loss_curve(history: Sequence[dict[str, Any]]) -> bytes:
    """Loss of every train step with its running mean, and test loss and what is beside it after each epoch.

    Args:
        history: Rows of the metric log.
    """
    steps = [row for row in history if "loss" in row]
    tests = [row for row in history if "test_loss" in row]
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    x, loss = np.array([row["step"] for row in steps]), np.array([row["loss"] for row in steps])
    axes.plot(x, loss, color="#b8c4d6", linewidth=0.8, label="train loss, each step")
    width = max(1, len(loss) // 50)
    axes.plot(
        x[width - 1 :], np.convolve(loss, np.ones(width) / width, "valid"), color="#27548a", label=f"mean of {width}"
    )
    axes.plot([r["step"] for r in tests], [r["test_loss"] for r in tests], "o-", color="#c2571a", label="test loss")
    second = beside(history)
    name, loss_name = BESIDE[second]
    axes.set(xlabel="step", ylabel=loss_name, yscale="log")
    axes.grid(alpha=0.3)
    right = axes.twinx()
    right.plot(
        [r["step"] for r in tests], [r[f"test_{second}"] for r in tests], "s--", color="#3a7d44", label=f"test {name}"
    )
    right.set_ylabel(name)
    handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, loc="upper right", fontsize=8)
    return png(figure)


def confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> bytes:
    """Counts of (true class, predicted class).

    Args:
        counts: int [classes, classes], rows are the truth.
        classes: Names by index.
    """
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    index = range(len(classes))
    # A name is text: with two $ in it, it would be taken for a formula.
    axes.set_xticks(index, classes, rotation=45 if max(map(len, classes)) > 3 else 0, ha="right", parse_math=False)
    axes.set_yticks(index, classes, parse_math=False)
    axes.set(xlabel="predicted", ylabel="truth")
    if len(classes) <= 20:
        for i, j in np.argwhere(counts):
            axes.text(
                j,
                i,
                str(counts[i, j]),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if share[i, j] > 0.5 else "black",
            )
    return png(figure)


def predicted_true(truth: np.ndarray, predicted: np.ndarray) -> bytes:
    """What was predicted against what is true, with the line where both are equal.

    Args:
        truth: float [N].
        predicted: float [N]; of more than MOST_DOTS examples every k-th is shown.
    """
    some = slice(None, None, max(1, -(-len(truth) // MOST_DOTS)))
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(truth[some], predicted[some], ".", color="#27548a", alpha=0.4, markersize=4)
    ends = [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))]
    axes.plot(ends, ends, color="#c2571a", linewidth=1, label="equal")
    axes.set(xlabel="truth", ylabel="predicted")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return png(figure)


def pictures(images: np.ndarray, captions: Sequence[str], across: int = 6) -> bytes:
    """A grid of pictures, each with a caption.

    Args:
        images: [N, height, width, 1 or 3], of any dtype; uint8 is shown as it is, else each from its least number to
            its greatest.
        captions: One for each.
        across: Pictures in a row.
    """
    down = max(1, -(-len(images) // across))
    figure = Figure(figsize=(1.75 * across, 2.1 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes in grid:
        axes.set_axis_off()
    for axes, image, caption in zip(grid, images, captions, strict=False):
        shown = image if image.dtype == np.uint8 else (image - image.min()) / max(np.ptp(image), 1e-12)
        top = 255 if image.dtype == np.uint8 else 1
        axes.imshow(shown[..., 0] if shown.shape[-1] == 1 else shown, cmap="gray", vmin=0, vmax=top)
        axes.set_title(caption, fontsize=6.5, parse_math=False)
    return png(figure)


def feed_settings(names: Sequence[str], rates: Sequence[float | None], chosen: int) -> bytes:
    """Examples a second of each setting of the feed; the one that was chosen stands out.

    Args:
        names: Of the settings.
        rates: Examples a second; None for a setting that wasn't tried.
        chosen: Index of the setting to use.
    """
    figure = Figure(figsize=(6.4, 0.9 + 0.34 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    shown = [rate or 0.0 for rate in rates]
    colors = ["#c2571a" if index == chosen else "#8fa3bf" for index in range(len(names))]
    bars = axes.barh(range(len(names)), shown, color=colors)
    axes.bar_label(bars, [f"{rate:,.0f}" if rate else "not tried" for rate in rates], padding=4, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="examples a second, checked and on the device", xlim=(0, 1.18 * max([*shown, 1.0])))
    axes.set_title(f"input settings on this machine; chosen: {names[chosen]}", fontsize=10)
    return png(figure)


def feed_ratios(
    names: Sequence[str], ratios: Sequence[float], spreads: Sequence[tuple[float, float]],
    goals: Sequence[float | None], about: str,
) -> bytes:  # fmt: skip
    """How many times as fast the feed is as limits and peers, on a logarithmic axis, so that a factor is a distance.

    Args:
        names: Of the limits and peers.
        ratios: Median of the paired ratios, ours / theirs.
        spreads: Least and greatest ratio of the rounds; drawn as a line.
        goals: What is wanted; drawn as a mark. None for no goal.
        about: Title.
    """
    figure = Figure(figsize=(8.5, 0.9 + 0.32 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    place = np.arange(len(names))
    bars = axes.barh(place, ratios, color="#8fa3bf")
    low, high = np.array(spreads).T
    axes.hlines(place, low, high, color="#27548a", linewidth=1.5)
    wanted = [(at, goal) for at, goal in enumerate(goals) if goal is not None]
    axes.plot([goal for _, goal in wanted], [at for at, _ in wanted], "|", color="#c2571a", markersize=16, label="goal")
    for bar, ratio, end in zip(bars, ratios, high, strict=True):
        middle = bar.get_y() + bar.get_height() / 2
        axes.annotate(f"{ratio:.3g}", (end, middle), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(place, names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="ours / theirs: median of paired rounds, line from least to greatest", xscale="log")
    axes.set_xlim(min(*low, 1.0) / 2, high.max() * 3)
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.legend(fontsize=8, loc="upper right")
    axes.set_title(about, fontsize=10)
    return png(figure)


def png(figure: Figure) -> bytes:
    """A figure as PNG, without the name of what drew it."""
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    return file.getvalue()
