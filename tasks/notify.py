"""Who is told when a run of a deployment fails, crashes, times out, or its model is refused.

The Prefect server tells, by automations: a process that was killed can't. `notify` in `[gristmill]` of prefect.toml, or
GRISTMILL_NOTIFY, names the addresses, separated by blanks:

    https://example.org/hook                         a webhook: gets {"subject": ..., "body": ...} as JSON
    https://hooks.slack.com/services/T0/B0/x         Slack
    mailtos://user:password@example.org?to=a@b.org   e-mail, and whatever else Apprise knows
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from datasets.errors import ParameterError
from tasks.backlog import FLOW
from tasks.progress import LOG

VARIABLE = "GRISTMILL_NOTIFY"
SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
NAME = "gristmill: tell"
STAGE = "gristmill.stage"
REFUSED = "gristmill.model.refused"
WENT_WRONG = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")}
DEPLOYED = [{"prefect.resource.role": "flow", "prefect.resource.name": FLOW}, {"prefect.resource.role": "deployment"}]
SUBJECT = f"{FLOW}/{{{{ flow_run.parameters.dataset }}}}: "
FACTS = """dataset: {{ flow_run.parameters.dataset }}
stage: {{ flow_run.labels["gristmill.stage"]|default("none had begun to work") }}
"""
FAILURE = (
    SUBJECT + "{{ flow_run.state.name }}",
    FACTS + "error: {{ flow_run.state.message }}\n"
    "what to run: prefect flow-run retry {{ flow_run.id }}\n"
    "  from the checkout; what is done stays done, a training goes on from its last checkpoint\n"
    "run: {{ flow_run.name }}, {{ flow_run|ui_url }}\n",
)
REFUSAL = (
    SUBJECT + "the new model was refused",
    FACTS + "error: none; {{ event.payload.champion }} stays the champion: {{ event.payload.reason }}\n"
    "what to run: nothing; python -m flows.promote {{ flow_run.parameters.dataset }} shows the versions\n"
    "run: {{ flow_run.name }}, {{ flow_run|ui_url }}\n",
)


def addresses() -> list[str]:
    """Where to send notices.

    Raises:
        ParameterError: An address that nothing can be sent to; without its path, which may hold a secret.
    """
    from apprise import Apprise

    found = os.environ.get(VARIABLE, "").split()
    for address in found:
        if not _is_webhook(address) and not Apprise().add(address):
            raise ParameterError(
                "notices can't be sent to an address", parameter="notify", got=_shown(address),
                expected="https://..., a Slack webhook, mailtos://..., or what Apprise knows",
            )  # fmt: skip
    return found


def tell_of_failures() -> None:
    """Puts an automation for each address and kind of news on the server; those of before are replaced."""
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client
    from prefect.events.actions import SendNotification

    wanted = addresses()
    with get_client(sync_client=True) as client:
        for old in client.read_automations():
            if old.name.startswith(NAME):
                client.delete_automation(old.id)
    for number, address in enumerate(wanted, 1):
        block = _block(address).save(f"gristmill-{number}", overwrite=True)
        for events, (subject, body) in ((WENT_WRONG, FAILURE), ({REFUSED}, REFUSAL)):
            what = "a model was refused" if events == {REFUSED} else "a run went wrong"
            Automation(
                name=f"{NAME} {_shown(address)} that {what}",
                trigger=_trigger(events, [] if events == {REFUSED} else DEPLOYED),
                actions=[SendNotification(block_document_id=block, subject=subject, body=body)],
            ).create()  # pyright: ignore[reportUnusedCoroutine]
        LOG.info("notices of failed runs go to %s", _shown(address))


def _trigger(events: set[str], related: list[dict[str, str]]) -> Any:  # noqa: ANN401
    """Any of these events of a flow run that has to do with all of `related`."""
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    return EventTrigger(
        expect=events,
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=[ResourceSpecification.model_validate(one) for one in related],
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )


def _is_webhook(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.hostname not in SLACK


def _block(address: str) -> Any:  # noqa: ANN401 - one of Prefect's notification blocks
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
    from pydantic import SecretStr

    if _is_webhook(address):
        said = {"subject": "{{subject}}", "body": "{{body}}"}
        return CustomWebhookNotificationBlock(name="gristmill", url=address, json_data=said, headers=None, cookies=None)
    return SlackWebhook(url=SecretStr(address))  # any address that isn't Slack's goes to Apprise as it is


def _shown(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or '...'}"


def mark_stage(stage: str) -> None:
    """Notes on the current flow run which stage does its work, for a notice that comes when the process is gone."""
    from prefect.client.orchestration import get_client

    if (run := _deployed_run()) is None:
        return
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(run.id, {STAGE: stage})
    except Exception as error:  # a notice without its stage is better than no training
        LOG.warning("the run can't be marked with its stage: %s", error)


def _deployed_run() -> Any:  # noqa: ANN401 - Prefect's FlowRun or None
    """The current flow run, if it is one of a deployment: a person who runs a command sees for himself."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    run = None if context is None else context.flow_run
    return None if run is None or run.deployment_id is None else run


def say_refused(run_id: str, champion: str | None, reason: str) -> None:
    """Tells the server that the model of a run was refused, if the run is that of a deployment."""
    from prefect.events import emit_event

    if _deployed_run() is None:
        return
    emit_event(
        REFUSED, resource={"prefect.resource.id": f"prefect.flow-run.{run_id}"},
        payload={"champion": champion, "reason": reason},
    )  # fmt: skip
