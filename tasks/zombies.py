"""Runs whose process died with everything that could have told the server: the server itself notices and ends them.

A run sends a heartbeat every 30 seconds (`[flows]` in prefect.toml). An automation of the server marks a run of our
flow Crashed when none came for SECONDS_OF_SILENCE, which frees its slot, so that the next night isn't blocked. A slow
run goes on beating, from a thread of its own.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

from tasks.backlog import FLOWS

NAME = "gristmill: end runs without a heartbeat"
SECONDS_OF_SILENCE = 90
HEARTBEAT = "prefect.flow-run.heartbeat"
ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}


def watch_for_zombies() -> None:
    """Puts the automation on the server, once; an older one of the same name is replaced."""
    wanted = Automation(
        name=NAME,
        description="Frees the slot of a run whose process died without a word",
        trigger=EventTrigger(
            after={HEARTBEAT},
            expect={HEARTBEAT, *ENDS},
            match=ResourceSpecification.model_validate({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification.model_validate(
                {"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)}
            ),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SECONDS_OF_SILENCE),
        ),
        actions=[  # pyright: ignore[reportArgumentType]
            ChangeFlowRunState(
                state=StateType.CRASHED, name="Crashed", message=f"no heartbeat for {SECONDS_OF_SILENCE} s", force=False
            )
        ],
    )
    with get_client(sync_client=True) as client:
        old = client.read_automations_by_name(NAME)
        for automation in old:
            client.delete_automation(automation.id)
    wanted.create()
