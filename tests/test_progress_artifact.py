"""A long stage has a progress artifact in the run, which moves and ends at its last count; a short one has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from tasks import progress
from tasks.progress import bar
from tasks.progress_artifact import ProgressArtifact


@flow(name="long", persist_result=False)
def long(dataset: str) -> list[tuple[str, float, str]]:
    seen = []
    with bar("fit", 200, "steps") as steps:
        for done in (50, 100):
            steps.move_to(done, "loss 0.5")
            seen += artifacts()
        steps.move_to(250)
    return seen + artifacts()


def artifacts() -> list[tuple[str, float, str]]:
    of_this_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id]))  # type: ignore[list-item]
    with get_client(sync_client=True) as client:
        found: list[Any] = client.read_artifacts(artifact_filter=of_this_run)
    return [(one.key, one.data, one.description) for one in found if one.type == "progress"]


def test_a_long_stage_moves_to_its_end(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert long("my_data") == [
        ("my-data-fit-progress", 25.0, "fit: 50 of 200 steps, loss 0.5"),
        ("my-data-fit-progress", 50.0, "fit: 100 of 200 steps, loss 0.5"),
        ("my-data-fit-progress", 100.0, "fit: 250 of 200 steps"),
    ]


def test_a_short_stage_has_none(prefect_server: str) -> None:
    assert long("my_data") == []


def test_outside_of_a_run_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", lambda *given, **more: pytest.fail("asked"))
    ProgressArtifact("fit", "steps").show(1, 2)


def test_trouble_of_the_server_stops_no_work(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    def fail(*given: object, **more: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", fail)
    assert long("my_data") == []
    assert [line for line in said.messages if "can't be shown" in line] == [
        "fit: its progress can't be shown in the UI: gone"
    ]
