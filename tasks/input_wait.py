"""How long each training step waited for its batch, what share of the training that is, and what helps."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 0.05  # share of the training above which there is a warning
LEAST_SECONDS = 1.0  # of waiting; less isn't worth a word, whatever its share


class InputWait:
    """Counts the waiting of one training, step by step.

    Attributes:
        first: Step of the first wait.
        seconds: Of all waits.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.seconds = 0.0
        self._waits: list[float] = []

    def add(self, seconds: float) -> None:
        """The wait for the next batch."""
        self.seconds += seconds
        self._waits.append(seconds)

    def share(self, seconds: float) -> float | None:
        """Of a training that took `seconds`; None before it began."""
        return self.seconds / seconds if seconds else None

    def report(self) -> dict[str, Any]:
        """Median, 99th percentile and greatest wait in ms, and the step of the greatest; empty without steps."""
        if not self._waits:
            return {}
        waits = 1000 * np.array(self._waits)
        worst = int(waits.argmax())
        median, high = np.percentile(waits, (50, 99))
        return {
            "median_ms": round(float(median), 3), "p99_ms": round(float(high), 3),
            "greatest_ms": round(float(waits[worst]), 3), "greatest_at_step": self.first + worst,
        }  # fmt: skip

    def warning(self, seconds: float, *, augmented: bool) -> str | None:
        """What to tell about a training that waited too long, with the cure; None if it didn't.

        Args:
            seconds: That the training took.
            augmented: Whether batches are augmented on the host.
        """
        share = self.share(seconds)
        if share is None or share <= MOST or self.seconds < LEAST_SECONDS:
            return None
        cures = ["`--refresh feed` measures this machine again, which should be quiet meanwhile"]
        if augmented:
            cures.append("augment less on the host (a rotation costs most), or move it into the model's step")
        cures.append("a larger --batch-size, which spreads the fixed cost of a batch over more examples")
        return f"{share:.0%} of the training was spent waiting for input ({self.seconds:.1f} s); {'; or '.join(cures)}"
