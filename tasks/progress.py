"""What a person sees while a stage works: a bar in a terminal, a line now and then elsewhere, and a bar in the UI."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from tasks.progress_artifact import ProgressArtifact

LOG = logging.getLogger("gristmill")
SECONDS_BETWEEN_LINES = 10.0


class Bar:
    """The progress of one stage.

    Args:
        stage: Its name.
        total: How many units there are, if that is known.
        unit: What is counted: examples, bytes, steps.
        rich: Draws it; None for log lines.
    """

    def __init__(self, stage: str, total: int | None, unit: str, rich: Progress | None) -> None:
        self.stage, self.total, self.unit = stage, total, unit
        self.done, self._note = 0, ""
        self._rich = rich
        self._task: TaskID | None = rich.add_task(stage, total=total, unit=unit, note="") if rich else None
        self._last = time.monotonic()
        self._shown: ProgressArtifact | None = None

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more units; `note` is shown beside them, such as "loss 0.12, 3,400 examples/s"."""
        self.move_to(self.done + count, note)

    def move_to(self, done: int, note: str = "") -> None:
        """Sets the count, as after a resume."""
        self.done = done
        if self._rich is not None and self._task is not None:
            self._note = note or self._note
            self._rich.update(self._task, completed=done, note=self._note)
        if (now := time.monotonic()) - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            if self._rich is None:
                of = f" of {self.total:,}" if self.total else ""
                LOG.info("%s: %s%s %s%s", self.stage, f"{done:,}", of, self.unit, f", {note}" if note else "")
            self._show(note)

    def end(self) -> None:
        """Shows the last count in the UI, if the stage was long enough to be there."""
        if self._shown is not None:
            self._show("")

    def _show(self, note: str) -> None:
        if self.total and "prefect" in sys.modules:
            from tasks.progress_artifact import ProgressArtifact

            self._shown = self._shown or ProgressArtifact(self.stage, self.unit)
            self._shown.show(self.done, self.total, note)


@contextmanager
def bar(stage: str, total: int | None, unit: str) -> Iterator[Bar]:
    """The bar of a stage while it works; drawn only where standard error is a terminal."""
    if not sys.stderr.isatty():
        plain = Bar(stage, total, unit, None)
        yield plain
        plain.end()
        return
    columns = (
        TextColumn("{task.description:<9}"), BarColumn(bar_width=28), MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"), TimeElapsedColumn(), TextColumn("[dim]{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as rich:
        drawn = Bar(stage, total, unit, rich)
        yield drawn
        drawn.end()


def tell(stage: str, what: str) -> None:
    """Says in one line what became of a stage: beside the bars in a terminal, in the log elsewhere."""
    if what.startswith("cached"):  # the flow names all of these in one line of the log
        if sys.stderr.isatty():
            Console(stderr=True, highlight=False).print(f"{stage:<9} [dim]{what}[/dim]")
        return
    LOG.info("%s: %s", stage, what)
