"""The metrics of a step in one array: each further array that a program returns costs a small step 1 to 2 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasks.leaves import local


@dataclass(frozen=True)
class Slot:
    """Where a metric lies in the array.

    Attributes:
        first: Of its numbers.
        shape: That it has.
        dtype: That it has.
    """

    first: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


Layout = dict[str, Slot]


def layout_of(metrics: Mapping[str, Any]) -> Layout:
    """Where `pack` puts each metric: arrays, or anything else with shape and dtype."""
    layout, first = Layout(), 0
    for name, value in metrics.items():
        layout[name] = Slot(first, tuple(value.shape), np.dtype(value.dtype))
        first += int(np.prod(value.shape))
    return layout


def pack(metrics: Mapping[str, jax.Array]) -> jax.Array:
    """float32 [numbers]: all metrics, end to end; whole numbers above 2**24 lose digits."""
    return jnp.concatenate([value.astype(jnp.float32).reshape(-1) for value in metrics.values()])


class StepMetrics(Mapping[str, np.ndarray]):
    """Metrics of one step by name, on the device until one is asked for, which waits for the step.

    Args:
        packed: As `pack` gives it.
        layout: Of the same metrics.
    """

    def __init__(self, packed: jax.Array, layout: Layout) -> None:
        self.packed, self.layout = packed, layout

    @classmethod
    def of(cls, metrics: Mapping[str, jax.Array]) -> StepMetrics:
        """Packs metrics that a step gave one by one."""
        return cls(pack(metrics), layout_of(metrics))

    @cached_property
    def _fetched(self) -> np.ndarray:
        return np.asarray(local(self.packed))

    def __getitem__(self, name: str) -> np.ndarray:
        slot = self.layout[name]
        values = self._fetched[slot.first : slot.first + int(np.prod(slot.shape))]
        return values.reshape(slot.shape).astype(slot.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout)

    def __len__(self) -> int:
        return len(self.layout)
