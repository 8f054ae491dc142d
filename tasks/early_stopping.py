"""When a training has stopped getting better: its memory is two numbers, which a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class EarlyStopping:
    """Counts evaluations since the lowest loss.

    Args:
        patience: Evaluations in a row without a lower loss that end the training; None to never end it.
        state: What `state` gave when the checkpoint was saved, so that a resumed training ends where an uninterrupted
            one does; None at the start.
    """

    def __init__(self, patience: int | None, state: Mapping[str, Any] | None = None) -> None:
        self._patience = patience
        self._lowest: float | None = None if state is None else state["lowest"]
        self._since = 0 if state is None else state["since"]

    def see(self, loss: float) -> None:
        """Takes the loss of one evaluation."""
        if self._lowest is None or loss < self._lowest:
            self._lowest, self._since = loss, 0
        else:
            self._since += 1

    @property
    def over(self) -> bool:
        """Whether the training ends."""
        return self._patience is not None and self._since >= self._patience

    def state(self) -> dict[str, Any]:
        """JSON for the checkpoint."""
        return {"lowest": self._lowest, "since": self._since}
