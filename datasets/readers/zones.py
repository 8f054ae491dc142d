"""Whether the times of a column have a zone: those of all files, or of none. A mixture would be hours off, unseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import pyarrow as pa

from datasets.errors import SchemaError


@dataclass
class Zones:
    """What the files that were read so far say.

    Attributes:
        said: By column, whether its times have a zone, and the first file that says so.
    """

    said: dict[str, tuple[bool, str]] = field(default_factory=dict)

    def see(self, column: str, zoned: bool, file: str) -> None:
        """Notes what a file says of a column.

        Raises:
            SchemaError: Another file says the opposite.
        """
        before, where = self.said.setdefault(column, (zoned, file))
        if before is not zoned:
            raise SchemaError(
                f"column {column!r}: times {_with(zoned)} here and {_with(before)} in another file", file=file,
                field=column, got=f"times {_with(zoned)}", expected=f"times {_with(before)}, as in {where}",
                cure="write them with a zone (2026-03-01T12:30:00+00:00) in all files, or in none: then they are UTC",
            )  # fmt: skip

    def see_type(self, column: str, kind: pa.DataType, file: str) -> None:
        """Notes what the type of a column says, if it is one of times; raises as `see`."""
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            self.see(column, getattr(kind, "tz", None) is not None, file)

    def see_all(self, said: Mapping[str, tuple[bool, str]]) -> None:
        """Notes what was said elsewhere; raises as `see`."""
        for column, (zoned, file) in said.items():
            self.see(column, zoned, file)


_SHARED: ContextVar[Zones | None] = ContextVar("zones", default=None)


@contextmanager
def seeing(zones: Zones) -> Iterator[None]:
    """Within it, all readers note in `zones` what their files say."""
    token = _SHARED.set(zones)
    try:
        yield
    finally:
        _SHARED.reset(token)


def zones_here() -> Zones:
    """The one that is shared now, or a new one."""
    return _SHARED.get() or Zones()


def _with(zoned: bool) -> str:
    return "with a zone" if zoned else "without a zone"
