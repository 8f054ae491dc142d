"""A run that takes too long is stopped in order: a training saves first, and the next run goes on from there.

The kernel's alarm clock (SIGALRM) is used, so nothing has to look at the time, and nothing waits for a stage that
hangs. A training remembers the first alarm and saves at its next step (see `tasks.signals`), anything else is
interrupted where it is; whoever doesn't heed the first is interrupted GRACE seconds later.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from datasets.errors import ParameterError, RunTimeout

GRACE = 30.0


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raises RunTimeout in the block when it takes longer; None is for ever.

    Raises:
        RunTimeout: The time is over.
        ParameterError: This isn't the main thread, which alone can be interrupted.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise ParameterError("only a run in the main thread can have a timeout", parameter="timeout", got=seconds)

    def over(number: int, frame: FrameType | None) -> None:
        raise RunTimeout(
            "the run took too long and was stopped", expected=f"at most {seconds:g} s",
            cure="the next run goes on from what is done and from the last checkpoint; or allow it a longer timeout",
        )  # fmt: skip

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
