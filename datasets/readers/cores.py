"""Whether a reader may use every core, or files are read side by side and each reader has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ONE: ContextVar[bool] = ContextVar("one_core", default=False)


@contextmanager
def one_core() -> Iterator[None]:
    """Within it, readers leave Arrow's threads alone: the other cores have readers of their own."""
    token = _ONE.set(True)
    try:
        yield
    finally:
        _ONE.reset(token)


def may_use_all() -> bool:
    """Whether no other reader is at work beside this one."""
    return not _ONE.get()
