"""When a dataset is trained by itself: a cron line in a named time zone."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from datasets.errors import ParameterError

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "day of the week": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
PART = re.compile(r"(\*|\w+(-\w+)?)(/\d+)?")


@dataclass(frozen=True)
class Nightly:
    """A schedule, checked when the dataset file is loaded, so that a wrong one is never served.

    When clocks change, a time that doesn't exist runs at the next that does, and one that comes twice runs once.

    Attributes:
        cron: Five fields: minute, hour, day of the month, month, day of the week.
        timezone: IANA name, such as "Europe/Berlin" or "UTC".
    """

    cron: str = "0 2 * * *"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        parts = self.cron.split() if isinstance(self.cron, str) else []
        if len(parts) != len(FIELDS):
            raise ParameterError(
                "a cron line has five fields", parameter="cron", got=repr(self.cron), expected="0 2 * * *, for 2 a.m.",
                cure="words such as @nightly and a sixth field for seconds aren't taken",
            )  # fmt: skip
        for part, (field, low, high) in zip(parts, FIELDS, strict=True):
            if not all(_is_valid(item, field, low, high) for item in part.lower().split(",")):
                raise ParameterError(
                    f"a cron line has a wrong {field}", parameter="cron", got=self.cron, field=part,
                    expected=f"{low} to {high}, lists, ranges and steps",
                )  # fmt: skip
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            raise ParameterError(
                "there is no such time zone", parameter="timezone", got=repr(self.timezone),
                expected="an IANA name such as Europe/Berlin",
            ) from error  # fmt: skip


@dataclass(frozen=True)
class Predictions:
    """Predictions by the clock: `Predictions("/data/{date}.csv", "/data/scores-{date}.parquet", Nightly("0 5 * * *"))`.

    Attributes:
        raw: Raw file or folder; `{date}` stands for the day of the run, such as 2026-11-30.
        out: Parquet file to write; `{date}` likewise.
        nightly: When.
    """

    raw: str
    out: str
    nightly: Nightly = dataclasses.field(default_factory=Nightly)

    def __post_init__(self) -> None:
        for name in ("raw", "out"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ParameterError(f"{name} is a path", parameter=name, got=repr(getattr(self, name)))


def _is_valid(item: str, field: str, low: int, high: int) -> bool:
    if not PART.fullmatch(item):
        return False
    span, _, step = item.partition("/")
    if step and not 1 <= int(step) <= high:
        return False
    if span == "*":
        return True
    names = NAMES.get(field, [])
    ends = [names.index(end) + low if end in names else int(end) if end.isdigit() else -1 for end in span.split("-")]
    return all(low <= end <= high for end in ends) and ends == sorted(ends)
