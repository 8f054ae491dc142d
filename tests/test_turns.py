from __future__ import annotations

import sys
import threading

import pytest

from tasks.turns import INTERVAL, quick_turns


def test_the_interval_is_short_until_the_last_one_leaves() -> None:
    before = sys.getswitchinterval()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with quick_turns():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    with quick_turns():
        thread.start()
        assert inside.wait(20)
    assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    leave.set()
    thread.join()
    assert sys.getswitchinterval() == pytest.approx(before)


def test_an_error_restores_it_and_a_shorter_one_is_kept() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL / 10)
    try:
        with pytest.raises(ZeroDivisionError), quick_turns():
            _ = 1 / (sys.getswitchinterval() - sys.getswitchinterval())
        assert sys.getswitchinterval() == pytest.approx(INTERVAL / 10)
    finally:
        sys.setswitchinterval(before)
