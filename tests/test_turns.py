from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tasks.turns import SECONDS, short_turns


@pytest.fixture(params=[0.005, 0.0001])
def usual(request: pytest.FixtureRequest) -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_turns_are_short_until_the_last_leaves(usual: float) -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with short_turns():
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    short = pytest.approx(min(SECONDS, usual), abs=2e-6)  # Python cuts off what is below a microsecond
    with suppress(KeyError), short_turns():
        assert sys.getswitchinterval() == short
        thread.start()
        assert entered.wait(20)
        raise KeyError
    assert sys.getswitchinterval() == short
    leave.set()
    thread.join()
    assert sys.getswitchinterval() == pytest.approx(usual, abs=2e-6)
