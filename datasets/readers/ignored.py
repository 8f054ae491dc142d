"""What a reader leaves out because it is no data (hidden files, what systems leave), counted by name or ending."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MANIFEST = "manifest.json"  # of the store, beside the raw files: neither data nor worth a word

_NOTED: ContextVar[Counter[str] | None] = ContextVar("ignored", default=None)

log = logging.getLogger("gristmill")


@contextmanager
def noting(ignored: Counter[str]) -> Iterator[None]:
    """Within it, what is ignored is added up in `ignored`."""
    token = _NOTED.set(ignored)
    try:
        yield
    finally:
        _NOTED.reset(token)


def note(ignored: Counter[str], where: object) -> None:
    """Logs what was ignored in a place, and counts it where someone wants to know."""
    if not ignored:
        return
    log.info("ignored in %s: %s", where, ", ".join(f"{count} x {what}" for what, count in sorted(ignored.items())))
    noted = _NOTED.get()
    if noted is not None:
        noted.update(ignored)
