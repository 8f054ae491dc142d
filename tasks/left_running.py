"""Stages of runs whose process died: Prefect ends such a run, but its stages would be shown as running for ever."""

from __future__ import annotations

from typing import Any

from tasks.backlog import our_flows
from tasks.progress import LOG

MESSAGE = "its run ended without it"


def end_stages(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ANN401 - Flow, FlowRun, State: a hook of Prefect
    """Ends what a crashed run left running; whoever saw the crash calls this: the run itself, or what started it."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    _end(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id])))


def end_stages_of_ended_runs() -> None:
    """The same for every run of our flows: of one that ended on the server's word alone, nobody else did it."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import TERMINAL_STATES

    ended = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(TERMINAL_STATES)))
    _end(flow_filter=our_flows(), flow_run_filter=FlowRunFilter(state=ended))


def _end(**filters: Any) -> None:  # noqa: ANN401
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterState, TaskRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    unfinished = TaskRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    of_these = TaskRunFilter(state=TaskRunFilterState(type=unfinished))
    with get_client(sync_client=True) as client:
        for one in client.read_task_runs(task_run_filter=of_these, **filters):
            client.set_task_run_state(one.id, Crashed(message=MESSAGE), force=True)
            LOG.warning("%s: %s", one.name, MESSAGE)
