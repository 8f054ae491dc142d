"""Schedules of dataset files: what is refused before anything is served, and what Prefect makes of the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

from datasets.errors import ParameterError
from datasets.nightly import Nightly
from flows.train import train
from tasks.serving import schedule_of

GOOD = ["0 2 * * *", "*/15 0-5 1,15 * 1-5", "30 2 * * mon-fri", "0 0 1 jan *", "0 0 * * 7", "5/10 * * * *"]
BAD = [
    "@nightly", "60 2 * * *", "0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "0 2 * * * *",
    "0 2 * *", "", "a b c d e", "5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", "0 2 * foo *", "-1 * * * *",
]  # fmt: skip


@pytest.mark.parametrize("cron", GOOD)
def test_good_lines_are_taken_by_prefect_too(cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule

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


CHANGES = [("Europe/Berlin", date(2026, 3, 29)), ("Europe/Berlin", date(2026, 10, 25)),
           ("Australia/Lord_Howe", date(2026, 4, 5)), ("America/Santiago", date(2026, 9, 6))]  # fmt: skip


@pytest.mark.parametrize(("zone", "change"), CHANGES, ids=[f"{zone} {change}" for zone, change in CHANGES])
@pytest.mark.parametrize("cron", ["30 2 * * *", "15 0 * * *", "45 1 * * *", "0 3 * * *"])
def test_whenever_runs_are_scheduled_each_local_day_has_one(zone: str, change: date, cron: str) -> None:
    """Prefect looks again and again, so runs that it scheduled before a change meet those that it finds after it."""
    from prefect.server.schemas.schedules import CronSchedule as ServerSchedule

    schedule = ServerSchedule(cron=cron, timezone=zone)
    first = datetime(change.year, change.month, change.day, tzinfo=UTC) - timedelta(days=1)
    looks = (first + timedelta(minutes=20 * number) for number in range(3 * 24 * 3))
    times = {time.astimezone(UTC) for look in looks for time in asyncio.run(schedule.get_dates(n=4, start=look))}
    nights = sorted(time.astimezone(ZoneInfo(zone)).toordinal() for time in times)
    assert {later - earlier for earlier, later in pairwise(nights)} == {1}


def scheduled(client: SyncPrefectClient, deployment: UUID, start: datetime, days: int) -> list[datetime]:
    """Times of all runs of a deployment, after the server was let to look ahead from `start`."""
    asked = {"start_time": start.isoformat(), "end_time": (start + timedelta(days=days)).isoformat(), "max_runs": 100}
    client.request("POST", "/deployments/{id}/schedule", path_params={"id": deployment}, json=asked)  # pyright: ignore[reportArgumentType]
    runs = client.read_flow_runs(deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])))
    assert all(run.state_name == "Scheduled" for run in runs)
    return sorted(run.expected_start_time for run in runs if run.expected_start_time)


def next_change(zone: ZoneInfo) -> datetime:
    """The first midnight after the next change of clocks."""
    day = datetime.now(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    before = day.utcoffset()
    while day.utcoffset() == before:
        day = (day + timedelta(days=1)).replace(tzinfo=zone)
    return day


def served(nightly: Nightly | None) -> UUID:
    made: Any = train.to_deployment(name="of-a-test", parameters={"dataset": "mnist"}, schedule=schedule_of(nightly))
    return made.apply()


def test_runs_that_are_scheduled_already_follow_the_clock_that_is_served(prefect_server: str) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    change = next_change(berlin)
    with get_client(sync_client=True) as client:
        made = served(Nightly("30 2 * * *", "Europe/Berlin"))
        try:
            before = scheduled(client, made, change - timedelta(days=3), 6)
            assert served(Nightly("30 2 * * *", "Europe/Berlin")) == made  # the service starts again: nothing twice
            for hours in (1, 3, 26):  # and looks again, also in the night of the change
                again = scheduled(client, made, change - timedelta(days=1, hours=-hours), 4)
            nights = Counter(time.astimezone(berlin).date() for time in again)
            assert set(nights.values()) == {1}
            assert len(nights) >= 4
            assert set(before) >= {time for time in again if time <= before[-1]}
            served(Nightly("0 4 * * *", "Asia/Tokyo"))
            moved = scheduled(client, made, change - timedelta(days=3), 6)
            assert {f"{time.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M}" for time in moved} == {"04:00"}
            served(None)
            assert scheduled(client, made, change - timedelta(days=3), 6) == []
        finally:
            client.delete_deployment(made)
