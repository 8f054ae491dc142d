"""What a process that isn't the first of its training has in place of what writes: the first writes for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from tasks.checkpoint import Cost


class NoCheckpoints:
    """In place of `Checkpoints`: nothing is saved, so nothing can be the best."""

    cost = Cost()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def save(self, step: int, state: Any, *, meta: Any, metrics: Mapping[str, float] | None = None) -> float:  # noqa: ANN401
        """Saves nothing."""
        return 0.0

    def hold(self, step: int, state: Any, *, meta: Any, metrics: Mapping[str, float]) -> None:  # noqa: ANN401
        """Holds nothing."""

    def would_be_best(self, metrics: Mapping[str, float]) -> bool:
        """False: the first process knows."""
        return False

    def check(self) -> None:
        """Nothing can have failed."""

    def wait(self) -> None:
        """There is nothing to wait for."""


class NoLog:
    """In place of `MetricLog`."""

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Drops the rows."""

    def sync(self) -> dict[str, Any]:
        """No position."""
        return {}

    def position(self) -> dict[str, Any]:
        """No position."""
        return {}

    def close(self) -> None:
        """There is nothing to close."""
