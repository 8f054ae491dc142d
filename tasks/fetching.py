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

Metrics = dict[str, jax.Array]


class Fetching:
    """The metrics of the steps that weren't given yet.

    Args:
        names: Of the metrics, each of one number.
        every: Steps of a window.
    """

    def __init__(self, names: Sequence[str], every: int) -> None:
        self._names, self._every = tuple(names), every
        self._window: list[Metrics] = []
        self._on_its_way: tuple[int, jax.Array] | None = None

    @property
    def full(self) -> bool:
        """Whether the window holds all of its steps: then one of the two calls below is due."""
        return len(self._window) == self._every

    @property
    def count(self) -> int:
        """Steps that weren't given yet."""
        return len(self._window) + (self._on_its_way[0] if self._on_its_way else 0)

    def add(self, metrics: Metrics) -> None:
        """Adds those of the next step; fetches nothing."""
        self._window.append(metrics)

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
        metrics = [tuple(one[name] for name in self._names) for one in self._window]
        return packed(metrics + metrics[-1:] * (self._every - len(metrics)))  # of one length: one program

    def _arrived(self) -> list[dict[str, float]]:
        if self._on_its_way is None:
            return []
        (count, numbers), self._on_its_way = self._on_its_way, None
        return [dict(zip(self._names, row, strict=True)) for row in np.asarray(numbers)[:count].tolist()]


@jax.jit
def packed(metrics: list[tuple[jax.Array, ...]]) -> jax.Array:
    """float32 [steps, metrics]: one array to fetch, because each costs as much as a small step."""
    return jnp.stack([jnp.stack([value.astype(jnp.float32) for value in one]) for one in metrics])
