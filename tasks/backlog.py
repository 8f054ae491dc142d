"""Runs that a stop of the service left behind: abandoned ones are settled, of missed nights only the newest stays."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import datasets
from tasks.progress import LOG

FLOW = "train"
FLOWS = (FLOW, "predict", "promote", "clean")  # those with deployments
STORE, MODELS = "store", "models"  # names of the deployments of `clean` and `promote`
BY_SCHEDULE = "auto-scheduled"  # the tag that Prefect gives to runs of a schedule
SKIPPED = "skipped: the service was down at its time, and a newer night is due"
RECONCILED = "found running at start-up with no process behind it"
RUN_ID = b"PREFECT__FLOW_RUN_ID="


def settle_abandoned_runs() -> None:
    """Marks runs of our deployments as Crashed whose processes went down with the machine; that frees their slots.

    A run whose process lives on, because only the service was killed, is let alone; so is one of a work pool, which may
    work on another machine: the server ends it when its heartbeat stops (see `tasks.zombies`).
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    unfinished = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=our_flows(), deployment_filter=_our_deployments(),
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=unfinished)),
        )  # fmt: skip
        alive = runs_with_a_process()
        for run in runs:
            if run.work_pool_name is None and str(run.id) not in alive:
                client.set_flow_run_state(run.id, Crashed(message=RECONCILED), force=True)
                LOG.warning("run %s: %s", run.name, RECONCILED)


def runs_with_a_process() -> set[str]:
    """Ids of the flow runs that a process of this machine works on; it carries the id in its environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            variables = path.read_bytes().split(b"\0")
            found |= {one.removeprefix(RUN_ID).decode() for one in variables if one.startswith(RUN_ID)}
    return found


def skip_missed_nights() -> None:
    """After downtime: of the scheduled runs of a deployment that are overdue, only the newest stays."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterNextScheduledStartTime,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelled

    now = datetime.now(UTC)
    overdue = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        next_scheduled_start_time=FlowRunFilterNextScheduledStartTime(before_=now),  # pyright: ignore[reportArgumentType]
    )
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=our_flows(), deployment_filter=_our_deployments(), flow_run_filter=overdue
        )
        # What a person triggered meanwhile is not a night: it still runs
        nights = [run for run in runs if BY_SCHEDULE in run.tags]
        nights.sort(key=lambda run: run.expected_start_time or now)
        newest = {run.deployment_id: run.id for run in nights}
        for run in nights:
            if run.id != newest[run.deployment_id]:
                client.set_flow_run_state(run.id, Cancelled(message=SKIPPED), force=True)
                LOG.warning("run %s of %s: %s", run.name, run.expected_start_time, SKIPPED)


def our_flows() -> Any:  # noqa: ANN401
    """Filter of the flows that have deployments."""
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    return FlowFilter(name=FlowFilterName(any_=list(FLOWS)))  # the server may be one that others use too


def _our_deployments() -> Any:  # noqa: ANN401
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

    return DeploymentFilter(name=DeploymentFilterName(any_=[*datasets.names(), STORE, MODELS]))
