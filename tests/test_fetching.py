"""One window behind, nothing lost, nothing twice."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tasks.fetching import Fetching, stacked
from tasks.step_metrics import StepMetrics


def step(number: int) -> StepMetrics:
    return StepMetrics.of(
        {"other": jnp.zeros(4), "loss": jnp.float32(number), "applied": jnp.bool_(number % 3 != 0)}
    )  # fmt: skip


def test_a_window_is_given_when_the_next_is_full() -> None:
    fetching, given = Fetching(("loss", "applied"), 4), []
    for number in range(10):
        fetching.add(step(number))
        if fetching.full:
            given.append([row["loss"] for row in fetching.older()])
    assert given == [[], [0, 1, 2, 3]]
    assert fetching.count == 6
    assert [row["loss"] for row in fetching.all()] == [4, 5, 6, 7, 8, 9]
    assert fetching.all() == []
    assert fetching.count == 0


def test_all_gives_a_short_window_at_once() -> None:
    fetching = Fetching(("loss", "applied"), 4)
    fetching.add(step(3))
    fetching.add(step(4))
    assert fetching.all() == [{"loss": 3.0, "applied": 0.0}, {"loss": 4.0, "applied": 1.0}]


def test_the_window_before_is_given_without_waiting_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def watched(window: list[jax.Array]) -> jax.Array:
        asked.append(float(window[0][4]))
        return stacked(window)

    monkeypatch.setattr("tasks.fetching.stacked", watched)
    fetching = Fetching(("loss",), 2)
    for number in range(4):
        fetching.add(step(number))
        if fetching.full:
            fetching.older()
    assert asked == [0, 2]  # the copy of 2 and 3 is asked for, and only that of 0 and 1 was waited for


def test_windows_of_any_length_are_one_program() -> None:
    stacked.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]
    fetching = Fetching(("loss", "applied"), 5)
    for length in (5, 3, 1):
        for number in range(length):
            fetching.add(step(number))
        assert len(fetching.all()) == length
    assert stacked._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]
