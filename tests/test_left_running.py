"""What a run that ended left running is ended; what still runs, and what is somebody else's, is let alone."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Completed, Crashed, Running

from flows.sweep import sweep
from flows.train import train
from tasks.backlog import FLOW
from tasks.left_running import MESSAGE, end_stages, end_stages_of_ended_runs


def run_of(client: SyncPrefectClient, name: str, state: Any) -> Any:
    """A run with a stage that is done and one that runs."""

    @flow(name=name)
    def made() -> None:
        pass

    @task
    def stage() -> None:
        pass

    run = client.create_flow_run(made, state=Running())
    rows = [
        client.create_task_run(stage, run.id, dynamic_key=str(uuid.uuid4()), state=one).id
        for one in (Completed(), Running())
    ]
    client.set_flow_run_state(run.id, state, force=True)
    return run, rows


@pytest.mark.parametrize("made", [train, sweep], ids=["train", "sweep"])
def test_flows_that_have_stages_end_them(made: Any) -> None:
    assert end_stages in made.on_crashed_hooks


def test_stages_of_ended_runs_are_ended(prefect_server: str) -> None:
    with get_client(sync_client=True) as client:
        made = {
            "crashed": run_of(client, FLOW, Crashed()), "crashed later": run_of(client, FLOW, Crashed()),
            "running": run_of(client, FLOW, Running()), "of others": run_of(client, "somebody-elses", Crashed()),
        }  # fmt: skip

        def left() -> set[str]:
            states = {name: [client.read_task_run(row).state for row in rows] for name, (_, rows) in made.items()}
            assert all(done is not None and done.is_completed() for done, _ in states.values())
            ended = [running for _, running in states.values() if running is not None and running.is_crashed()]
            assert {state.message for state in ended} <= {MESSAGE}
            return {name for name, (_, running) in states.items() if running is not None and running.is_running()}

        try:
            assert left() == set(made)
            end_stages(None, made["crashed"][0], None)
            assert left() == {"crashed later", "running", "of others"}
            end_stages_of_ended_runs()
            assert left() == {"running", "of others"}
        finally:
            for run, _ in made.values():
                client.delete_flow_run(run.id)
