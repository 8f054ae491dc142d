"""Numbers that a person wrote into a dataset file, a form or a command line, checked by type and range."""

from __future__ import annotations

import math

from datasets.errors import ParameterError


def check_int(name: str, value: object, least: int) -> None:
    """Raises ParameterError unless `value` is a true int (no bool, no float) of at least `least`."""
    if type(value) is not int or value < least:
        raise ParameterError(
            f"{name} can't be {value!r}", parameter=name, got=f"{type(value).__name__} {value!r}",
            expected=f"a whole number of at least {least}",
        )  # fmt: skip


def check_float(name: str, value: object, low: float, high: float) -> None:
    """Raises ParameterError unless `value` is a finite number (no bool) with low <= value < high."""
    if type(value) not in (int, float) or not _fits(value, low, high):  # type: ignore[arg-type]
        raise ParameterError(
            f"{name} can't be {value!r}", parameter=name, got=f"{type(value).__name__} {value!r}",
            expected=f"a finite number, {low} <= {name}" + (f" < {high}" if math.isfinite(high) else ""),
        )  # fmt: skip


def _fits(value: float, low: float, high: float) -> bool:
    try:
        return math.isfinite(value) and low <= value < high
    except OverflowError:  # a whole number beyond every float
        return False
