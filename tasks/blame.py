"""Which examples of a batch are to blame for its failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def blamed(make: Callable[[np.ndarray], object], ids: np.ndarray) -> dict[str, Any]:
    """Facts for an error's message: the example with which `make` alone fails, found by halving, else all of them.

    Args:
        make: Fails for `ids`.
        ids: int64 [N], at least one.
    """
    rest = ids
    while len(rest) > 1:
        half = rest[: len(rest) // 2]
        rest = half if _fails(make, half) else rest[len(rest) // 2 :]
    return {"example": int(rest[0])} if _fails(make, rest) else {"examples": shown(ids)}


def shown(ids: np.ndarray) -> str:
    """The first twenty of some numbers, and how many there are."""
    some = ", ".join(str(i) for i in ids[:20].tolist())
    return some if len(ids) <= 20 else f"{some}, ... ({len(ids)} in all)"


def _fails(make: Callable[[np.ndarray], object], ids: np.ndarray) -> bool:
    try:
        make(ids)
    except (Exception, SystemExit):
        return True
    return False
