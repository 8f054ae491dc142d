"""The first signal is remembered and handed on at the end; the second acts at once."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from toy import run_python

from tasks.signals import SIGNALS, StopSignal

HEAD = """
import os, signal, sys, time
from tasks.signals import StopSignal
me = os.getpid()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_only_sets_the_flag_and_ends_the_process_when_the_work_is_in_order(number: signal.Signals) -> None:
    done = run_python(f"""{HEAD}
signal.signal(signal.SIGINT, signal.SIG_DFL)
with StopSignal() as stop:
    print("before", stop.received, flush=True)
    os.kill(me, {int(number)})
    print("saved after", stop.received, flush=True)
print("never", flush=True)
""")
    assert done.stdout == f"before None\nsaved after {int(number)}\n"
    assert done.returncode == -number


def test_the_second_acts_at_once() -> None:
    done = run_python(f"""{HEAD}
with StopSignal() as stop:
    os.kill(me, signal.SIGTERM)
    print("first", flush=True)
    os.kill(me, signal.SIGTERM)
    print("never", flush=True)
""")
    assert done.stdout == "first\n"
    assert done.returncode == -signal.SIGTERM


def test_the_second_may_be_the_other_of_the_two() -> None:
    # A background process of a shell inherits that it ignores SIGINT.
    done = run_python(f"""{HEAD}
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with StopSignal() as stop:
        os.kill(me, signal.SIGTERM)
        while stop.received is None:  # of two that wait, Python would take the lower number first
            time.sleep(0.01)
        os.kill(me, signal.SIGINT)
        time.sleep(60)
        print("never", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
    assert done.stdout == "interrupted\n"
    assert done.returncode == 0


def test_the_handler_that_was_there_before_gets_it_on_leaving() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.received == signal.SIGTERM
            assert got == []
        assert got == [signal.SIGTERM]
        with StopSignal() as stop:
            assert stop.received is None
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_error_is_shown_instead_of_the_signal() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        with pytest.raises(KeyError), StopSignal():  # noqa: PT012
            os.kill(os.getpid(), signal.SIGTERM)
            raise KeyError
        assert got == []
        assert signal.getsignal(signal.SIGTERM) is not before  # our own handler is back
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignal():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_takes_no_handlers() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[object] = []

    def work() -> None:
        with StopSignal() as stop:
            seen.extend([stop.received, *(signal.getsignal(number) for number in SIGNALS)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, *before]
