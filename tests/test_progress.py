"""A bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import Progress

from tasks import progress
from tasks.progress import Bar, bar


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_elsewhere_a_line_now_and_then(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    with bar("convert", 12_000, "examples") as shown:
        shown.advance(1_000)
        assert said.messages == []
        clock.now += progress.SECONDS_BETWEEN_LINES
        shown.advance(1_000, "fast")
        shown.advance(1_000)
        clock.now += progress.SECONDS_BETWEEN_LINES
        shown.move_to(9_000)
    assert said.messages == ["convert: 2,000 of 12,000 examples, fast", "convert: 9,000 of 12,000 examples"]
    assert shown.done == 9_000


def test_an_unknown_total_is_left_out(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    with bar("fetch", None, "bytes") as shown:
        clock.now += 60
        shown.advance(5)
    assert said.messages == ["fetch: 5 bytes"]


def test_in_a_terminal_a_bar_and_no_lines(
    clock: Clock, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with bar("fit", 10, "steps") as shown:
        clock.now += 60
        shown.advance(4, "loss 0.5")
        shown.advance(3)  # the last note stays
    assert "fit" in terminal.getvalue()
    assert "7/10" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()
    assert said.messages == []


def test_a_bar_drawn_by_rich_keeps_count() -> None:
    rich = Progress(console=Console(file=io.StringIO()))
    shown = Bar("fit", 10, "steps", rich)
    shown.move_to(6)
    shown.advance()
    assert rich.tasks[0].completed == 7
    assert rich.tasks[0].total == 10
