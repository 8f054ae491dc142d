"""The deployments `predict/<dataset>`: for a trigger from anywhere, or by the dataset file's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import datasets
from datasets.nightly import Predictions
from tasks.request import CHECKOUT
from tasks.serving import deployment_options, schedule_of

DATE = "{date}"


def prediction_options() -> Iterator[dict[str, Any]]:
    """Options of `Flow.to_deployment` for each dataset file that can be loaded."""
    for options in deployment_options():
        dataset = datasets.load(options["name"])
        when = dataset.predictions
        yield {
            **options,
            "description": f"What the champion says of raw files: {dataset.about}",
            "schedule": None if when is None else schedule_of(when.nightly),
            "parameters": {"dataset": options["name"], **({} if when is None else {"raw": when.raw, "out": when.out})},
        }


def dated(path: str, dataset: str) -> str:
    """A path with the day for `{date}`, as 2026-11-30: that for which the run was scheduled, else today.

    The day is that of the dataset's own time zone. Relative paths start at the checkout.
    """
    when = datasets.load(dataset).predictions
    if DATE in path:
        path = path.replace(DATE, _scheduled().astimezone(zone_of(when)).strftime("%Y-%m-%d"))
    return str(CHECKOUT / path)


def zone_of(when: Predictions | None) -> ZoneInfo:
    """Time zone of a schedule, UTC without one."""
    return ZoneInfo("UTC" if when is None else when.nightly.timezone)


def _scheduled() -> datetime:
    from prefect.runtime import flow_run

    return flow_run.scheduled_start_time or datetime.now(ZoneInfo("UTC"))
