"""The automation that ends runs without a heartbeat is on the server once, and means our flow alone."""

from __future__ import annotations

from prefect.client.orchestration import get_client

from tasks.backlog import FLOWS
from tasks.zombies import NAME, SECONDS_OF_SILENCE, watch_for_zombies


def test_it_is_there_once_however_often_the_service_starts(prefect_server: str) -> None:
    for _ in range(2):
        watch_for_zombies()
    with get_client(sync_client=True) as client:
        (automation,) = client.read_automations_by_name(NAME)
        client.delete_automation(automation.id)
    assert automation.enabled
    value = automation.model_dump(mode="json")
    related = value["trigger"]["match_related"]
    assert (related["prefect.resource.role"], related["prefect.resource.name"]) == ("flow", list(FLOWS))
    assert value["trigger"]["within"] == SECONDS_OF_SILENCE
    assert value["actions"][0]["state"] == "CRASHED"
