"""Schedules of dataset files: what is refused before anything is served, and what Prefect makes of the rest."""

from __future__ import annotations

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from prefect.client.schemas.schedules import CronSchedule

from datasets.errors import ParameterError
from datasets.nightly import Nightly

GOOD = ["0 2 * * *", "*/15 0-5 1,15 * 1-5", "30 2 * * mon-fri", "0 0 1 jan *", "0 0 * * 7", "5/10 * * * *"]
BAD = [
    "@nightly", "60 2 * * *", "0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "0 2 * * * *",
    "0 2 * *", "", "a b c d e", "5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", "0 2 * foo *", "-1 * * * *",
]  # fmt: skip


@pytest.mark.parametrize("cron", GOOD)
def test_good_lines_are_taken_by_prefect_too(cron: str) -> None:
    assert CronSchedule(cron=Nightly(cron).cron, timezone="UTC").cron == cron


@pytest.mark.parametrize("cron", BAD)
def test_bad_lines_are_refused(cron: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Nightly(cron)
    assert repr(cron)[1:-1] in str(caught.value)


@pytest.mark.parametrize("zone", ["Berlin", "", "Europe/Nowhere", "../etc/passwd", "UTC+2"])
def test_bad_zones_are_refused(zone: str) -> None:
    with pytest.raises(ParameterError, match="no such time zone"):
        Nightly(timezone=zone)


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ((2026, 3, 28), ["03-28T02:30+0100", "03-29T03:30+0200", "03-30T02:30+0200"]),
        ((2026, 10, 24), ["10-24T02:30+0200", "10-25T02:30+0200", "10-26T02:30+0100"]),
    ],
)
def test_each_local_day_has_one_run_when_clocks_change(day: tuple[int, int, int], expected: list[str]) -> None:
    from prefect.server.schemas.schedules import CronSchedule as ServerSchedule

    nightly = Nightly("30 2 * * *", "Europe/Berlin")
    schedule = ServerSchedule(cron=nightly.cron, timezone=nightly.timezone)
    start = datetime(*day, tzinfo=ZoneInfo("Europe/Berlin"))
    dates = asyncio.run(schedule.get_dates(n=3, start=start))
    assert [date.astimezone(ZoneInfo("Europe/Berlin")).strftime("%m-%dT%H:%M%z") for date in dates] == expected
