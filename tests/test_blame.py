from __future__ import annotations

import sys

import numpy as np
import pytest

from tasks.blame import blamed, shown

IDS = np.arange(100, 137)


@pytest.mark.parametrize("bad", [100, 118, 136])
@pytest.mark.parametrize("leaves", [False, True])
def test_the_example_that_fails_alone_is_found(bad: int, leaves: bool) -> None:
    calls: list[int] = []

    def make(ids: np.ndarray) -> None:
        calls.append(len(ids))
        if bad in ids:
            sys.exit(0) if leaves else print(ids[1000])

    assert blamed(make, IDS) == {"example": bad}
    assert sum(calls) < 2 * len(IDS)


def test_of_two_the_first_is_named_and_of_a_combination_all() -> None:
    assert blamed(lambda ids: 1 / int(not {105, 130} & set(ids.tolist())), IDS) == {"example": 105}
    assert blamed(lambda ids: 1 / (len(ids) < 30), IDS) == {"examples": shown(IDS)}


def test_many_are_shown_in_short() -> None:
    assert shown(np.arange(3)) == "0, 1, 2"
    assert shown(np.arange(20)).endswith("18, 19")
    assert shown(np.arange(21)).endswith("18, 19, ... (21 in all)")
