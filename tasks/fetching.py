"""Metrics on their way from the device to the host, one window of steps behind the training.

To fetch is to wait until the device has done all that it was asked to; then it has nothing to do until the host has
looked at the numbers and asked for more. So a window is fetched only when the next one is full: its numbers are there
by then, and the device always has work.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tasks.step_metrics import Layout, StepMetrics


class Fetching:
    """The metrics of the steps that weren't given yet.

    Args:
        names: Of the metrics that are wanted, each of one number.
        every: Steps of a window.
    """

    def __init__(self, names: Sequence[str], every: int) -> None:
        self._names, self._every = tuple(names), every
        self._window: list[jax.Array] = []
        self._layout: Layout = {}
        self._on_its_way: tuple[int, jax.Array] | None = None

    @property
    def full(self) -> bool:
        """Whether the window holds all of its steps: then one of the two calls below is due."""
        return len(self._window) == self._every

    @property
    def count(self) -> int:
        """Steps that weren't given yet."""
        return len(self._window) + (self._on_its_way[0] if self._on_its_way else 0)

    def add(self, metrics: StepMetrics) -> None:
        """Adds those of the next step; fetches nothing."""
        self._window.append(metrics.packed)
        self._layout = metrics.layout

    def older(self) -> list[dict[str, float]]:
        """Rows of the window before this one, oldest first, and begins to fetch this one."""
        rows = self._arrived()
        self._on_its_way = len(self._window), self._packed()
        self._window = []
        return rows

    def all(self) -> list[dict[str, float]]:
        """Rows of every step that was added; waits for the newest."""
        rows = self._arrived()
        if self._window:
            self._on_its_way = len(self._window), self._packed()
            self._window = []
            rows += self._arrived()
        return rows

    def _packed(self) -> jax.Array:
        lacking = self._every - len(self._window)
        return stacked(self._window + self._window[-1:] * lacking)  # of one length: one program

    def _arrived(self) -> list[dict[str, float]]:
        if self._on_its_way is None:
            return []
        (count, numbers), self._on_its_way = self._on_its_way, None
        wanted = np.asarray(numbers)[:count, [self._layout[name].first for name in self._names]]
        return [dict(zip(self._names, row, strict=True)) for row in wanted.tolist()]


@jax.jit
def stacked(window: list[jax.Array]) -> jax.Array:
    """float32 [steps, numbers]: one array to fetch, because each costs as much as a small step."""
    return jnp.stack(window)
