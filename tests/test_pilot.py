from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.pilot import MOST_ROUNDS, both_ways, in_turns, said


def replay(values: list[float], log: list[str], name: str) -> Callable[[], float]:
    given = iter(values)

    def run() -> float:
        log.append(name)
        return next(given)

    return run


def test_two_things_are_timed_in_turns_without_their_first_time() -> None:
    log: list[str] = []
    first = replay([100.0] + [0.002] * 12 + [5.0] * 8, log, "a")
    second = replay([100.0] + [0.001] * MOST_ROUNDS, log, "b")
    assert in_turns(first, second) == (pytest.approx(2.0), pytest.approx(1.0))
    assert log == ["a", "b"] * (MOST_ROUNDS + 1)


def test_both_ways_count_what_is_compiled_and_the_winners_own_training() -> None:
    assert both_ways(6, 3, 2, one=(10.0, 1.0), many=(20.0, 4.0)) == (3 * 10 + 6 * 1, 2 * (20 + 4) + 10 + 1)


def test_the_verdict_says_how_and_why() -> None:
    facts = {"members": 10, "steps": 1200, "step_ms": 6.1, "single_step_ms": 0.95, "together_s": 9.0,
             "one_by_one_s": 13.5, "together": True}  # fmt: skip
    assert said(facts) == (
        "a step of all takes 6.10 ms, of one 0.95 ms; with compilation, 1,200 steps and the winner's training, one"
        " program takes 9.0 s, one after the other 13.5 s"
    )
