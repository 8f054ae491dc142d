"""Runs left behind: abandoned ones free their slots, of missed nights one stays; those of others are let alone."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Pending, Running, Scheduled
from toy import python

from tasks.backlog import BY_SCHEDULE, FLOW, MODELS, RECONCILED, SKIPPED, settle_abandoned_runs, skip_missed_nights

POOL = "of-another-machine"


def deployment(client: SyncPrefectClient, flow: str, name: str) -> Any:
    return client.create_deployment(client.create_flow_from_name(flow), name=name)


def test_runs_that_a_crash_left_behind_are_settled(prefect_server: str) -> None:
    from flows.train import train

    with get_client(sync_client=True) as client:
        ours, others = deployment(client, FLOW, "mnist"), deployment(client, "somebody-elses", "mnist")
        foreign = deployment(client, FLOW, "of-another-project")
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        flow = client.create_flow_from_name(FLOW)
        pooled = client.create_deployment(flow, name="fashion_mnist", work_pool_name=POOL)
        names, scores = deployment(client, "promote", MODELS), deployment(client, "predict", "mnist")
        made = {
            "of promote": client.create_flow_run_from_deployment(names).id,
            "of predict": client.create_flow_run_from_deployment(scores).id,
            "running": client.create_flow_run_from_deployment(ours).id,
            "pending": client.create_flow_run_from_deployment(ours).id,
            "scheduled": client.create_flow_run_from_deployment(ours).id,
            "other flow": client.create_flow_run_from_deployment(others).id,
            "other dataset": client.create_flow_run_from_deployment(foreign).id,
            "by hand": client.create_flow_run(train, parameters={"dataset": "mnist"}).id,
            "alive": client.create_flow_run_from_deployment(ours).id,
            "of a work pool": client.create_flow_run_from_deployment(pooled).id,
        }
        living = python("input()", stdin=subprocess.PIPE, env={"PREFECT__FLOW_RUN_ID": str(made["alive"])})
        for name, id_ in made.items():
            if name != "scheduled":
                client.set_flow_run_state(id_, Pending() if name == "pending" else Running(), force=True)
        try:
            settle_abandoned_runs()
            states = {name: client.read_flow_run(id_).state for name, id_ in made.items()}
        finally:
            living.communicate("\n")
            for id_ in made.values():
                client.delete_flow_run(id_)
            for id_ in (ours, others, foreign, pooled, names, scores):
                client.delete_deployment(id_)
            client.delete_work_pool(POOL)
    types = {name: state.type.value for name, state in states.items() if state is not None}
    assert types == {
        "of promote": "CRASHED", "of predict": "CRASHED", "running": "CRASHED", "pending": "CRASHED",
        "scheduled": "SCHEDULED", "other flow": "RUNNING",
        "other dataset": "RUNNING", "by hand": "RUNNING", "alive": "RUNNING", "of a work pool": "RUNNING",
    }  # fmt: skip
    assert states["running"] is not None
    assert states["running"].message == RECONCILED


def test_of_missed_nights_only_the_newest_stays(prefect_server: str) -> None:
    now = datetime.now(UTC)
    with get_client(sync_client=True) as client:
        ours, other = deployment(client, FLOW, "mnist"), deployment(client, FLOW, "fashion_mnist")
        foreign = deployment(client, FLOW, "of-another-project")

        def run(days: float, of: Any = ours, tags: tuple[str, ...] = (BY_SCHEDULE,)) -> Any:
            state = Scheduled(scheduled_time=now + timedelta(days=days))
            return client.create_flow_run_from_deployment(of, state=state, tags=tags).id

        made = {
            "two nights ago": run(-2), "last night": run(-1), "three nights ago": run(-3), "tonight": run(0.2),
            "other dataset": run(-2, other), "other project, older": run(-3, foreign),
            "other project, newer": run(-2, foreign), "triggered by hand": run(-2.5, tags=()),
        }  # fmt: skip
        try:
            skip_missed_nights()
            states = {name: client.read_flow_run(id_).state for name, id_ in made.items()}
        finally:
            for id_ in made.values():
                client.delete_flow_run(id_)
            for id_ in (ours, other, foreign):
                client.delete_deployment(id_)
    skipped = {name for name, state in states.items() if state is not None and state.type.value == "CANCELLED"}
    assert skipped == {"two nights ago", "three nights ago"}
    assert {state.message for name, state in states.items() if state is not None and name in skipped} == {SKIPPED}
