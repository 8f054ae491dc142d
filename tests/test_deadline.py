"""A block that takes too long is interrupted; one inside that saves first, is not, until the grace is over."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from datasets.errors import ParameterError, RunTimeout
from tasks import deadline as module
from tasks.deadline import deadline
from tasks.signals import StopSignal

LONG = 60.0


def test_what_takes_too_long_is_interrupted() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(RunTimeout, match="took too long") as caught, deadline(0.05):
        time.sleep(LONG)
    assert caught.value.facts["expected"] == "at most 0.05 s"
    assert isinstance(caught.value, TimeoutError)  # what Prefect calls TimedOut
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("seconds", [None, LONG])
def test_what_is_in_time_is_let_alone_and_the_clock_stopped(seconds: float | None) -> None:
    with deadline(seconds):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_training_saves_before_it_is_interrupted() -> None:
    saved = []
    with pytest.raises(RunTimeout), deadline(0.05), StopSignal() as stop:  # noqa: PT012 - what is done inside counts
        while stop.received is None:
            time.sleep(0.01)
        saved.append(stop.received)
    assert saved == [signal.SIGALRM]


def test_one_that_does_not_heed_it_is_interrupted_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.05)
    with pytest.raises(RunTimeout), deadline(0.05), StopSignal():
        time.sleep(LONG)


def test_another_thread_is_told_that_it_can_not() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with deadline(LONG):
                pass
        except ParameterError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1
