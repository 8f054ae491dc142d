"""Stopping in order: a signal is remembered, the training saves at its next step and then hands the signal on."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)  # the last is that of a run's own deadline


class StopSignal:
    """While open, the first of SIGNALS only sets `received`; a second one does what it did before.

    On leaving, the first signal is delivered again to the handler that was there before, so that Prefect records the
    run as it would have. In another thread than the main one Python takes no handlers, and signals act as usual.

    Attributes:
        received: The signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        self.received = number

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if self.received is not None and kind is None:
            os.kill(os.getpid(), self.received)
