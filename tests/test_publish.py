from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from httpx import ConnectError, ReadTimeout
from prefect.client.schemas.actions import ArtifactCreate
from prefect.exceptions import ObjectNotFound
from test_summary import finished

from tasks import publish as module
from tasks.durable import write_json
from tasks.evaluate import CONFUSION, LOSS_CURVE, METRICS
from tasks.feed import PLAN, PLOT
from tasks.publish import (
    MODEL_TABLE,
    feed_table,
    image,
    key_part,
    last_shown,
    model_page,
    page,
    publish,
    publish_cleaning,
    shown_before,
    table,
)
from tasks.run_record import write_run
from tasks.stage import Run
from tasks.summary import artifact_of, stage_table, summarise
from tasks.validate import PAGE, SAMPLES

SCORES = {
    "examples": 1000, "accuracy": 0.97512,
    "classes": {
        "a": {"support": 600, "precision": 0.98765, "recall": 0.91234, "f1": 0.95},
        "b": {"support": 400, "precision": 0.5, "recall": 1.0, "f1": 2 / 3},
    },
}  # fmt: skip
SETTING = {"threads": 0, "prefetch": 0, "workers": 0, "resident": False}
SLOW = {"examples_per_second": 1234.56, "start_seconds": 0.01234, "training_seconds": 9.8765, "why": ""}
UNTRIED = {"examples_per_second": None, "start_seconds": None, "training_seconds": None, "why": "not tried: light"}
FEED = {
    "chosen": {**SETTING, **SLOW, "why": "0 threads: least"}, "tier": "memory-mapped columns",
    "measured": [{**SETTING, **SLOW}, {**SETTING, "threads": 1, **SLOW}, {**SETTING, "workers": 1, **UNTRIED}],
}  # fmt: skip
BARS = b"\x89PNG bars"
CURVE, MATRIX = b"\x89PNG curve", b"\x89PNG matrix"


def with_files(store: Path) -> tuple[Run, Path]:
    run = finished(store, about="Cats | dogs")
    folder = run.store.path(artifact_of(run, "evaluate"))
    write_json(folder / METRICS, SCORES)
    (folder / LOSS_CURVE).write_bytes(CURVE)
    (folder / CONFUSION).write_bytes(MATRIX)
    plan = run.store.path(artifact_of(run, "feed"))
    write_json(plan / PLAN, FEED)
    (plan / PLOT).write_bytes(BARS)
    (run.store.path(artifact_of(run, "validate")) / PAGE).write_text("# Data of töy")
    return run, folder


def test_the_table_has_a_row_for_all_and_one_a_class() -> None:
    assert table(SCORES) == [
        {"class": "all", "examples": 1000, "accuracy or recall": 0.9751, "precision": "", "F1": ""},
        {"class": "a", "examples": 600, "accuracy or recall": 0.9123, "precision": 0.9877, "F1": 0.95},
        {"class": "b", "examples": 400, "accuracy or recall": 1.0, "precision": 0.5, "F1": 0.6667},
    ]


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "CatsAndDogs", "__x__", "café", "猫", "a__b"])
def test_prefect_takes_the_key_of_any_dataset(name: str) -> None:
    key = f"{key_part(name)}-metrics"
    assert ArtifactCreate(key=key).key == key


def test_keys_say_the_dataset() -> None:
    assert [key_part(name) for name in ("fashion_mnist", "CatsAndDogs")] == ["fashion-mnist", "catsanddogs"]


def test_a_picture_is_inside_the_page(tmp_path: Path) -> None:
    (tmp_path / "loss_curve.png").write_bytes(CURVE)
    assert image(tmp_path / "loss_curve.png") == f"![loss_curve](data:image/png;base64,{encoded(CURVE)})"


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_the_page_of_a_run(tmp_path: Path) -> None:
    run, folder = with_files(tmp_path)
    made = page(summarise(run, "id"), folder)
    assert made.startswith("# train/toy\n")
    assert "| test accuracy | 97.50% (975 of 1,000) |" in made
    assert "| data | Cats \\| dogs |" in made  # a bare | would begin another cell
    assert (
        f"| fit | resumed | 1.2 | lr: 1 -> 2; code x changed | key-fit | {artifact_of(run, 'fit').digest[:12]} |"
        in made
    )
    assert encoded(CURVE) in made
    assert encoded(MATRIX) in made
    assert "## Model" in made
    assert "```text" not in made
    (run.store.path(artifact_of(run, "fit")) / MODEL_TABLE).write_text("hidden, 512 parameters\n")
    assert "\n\n```text\nhidden, 512 parameters\n```" in page(summarise(run, "id"), folder)


def test_the_page_of_the_model_says_what_became_of_it(tmp_path: Path) -> None:
    run, _ = with_files(tmp_path)
    made = model_page(summarise(run, "id"))
    assert "refused: not better: [old] and [/new]. Champion: none. 101,770 parameters after 140 steps" in made
    assert "in the store at `fit/toy/fit-1`" in made


def test_a_row_a_stage_says_why_it_ran(tmp_path: Path) -> None:
    run, _ = with_files(tmp_path)
    rows = {row["stage"]: row for row in stage_table(summarise(run, "id"))}
    assert list(rows) == ["fetch", "convert", "validate", "feed", "fit", "evaluate", "promote"]
    assert rows["fit"]["why it ran"] == "lr: 1 -> 2; code x changed"
    assert rows["fetch"] | {"digest": ""} == {
        "stage": "fetch", "state": "cached", "seconds": 1.2, "why it ran": "", "key": "key-fetch", "digest": "",
    }  # fmt: skip


def test_the_settings_of_the_feed_are_rows_and_the_chosen_one_is_marked() -> None:
    columns = ("examples/s", "start, s", "input of the whole training, s", "remark")
    assert [tuple(row[name] for name in columns) for row in feed_table(FEED)] == [
        (1235.0, 0.012, 9.88, "chosen"), (1235.0, 0.012, 9.88, ""), ("", "", "", "not tried: light"),
    ]  # fmt: skip
    assert feed_table(FEED)[1]["threads"] == 1


@dataclass
class Server:
    """What was created on it, and who was told."""

    made: dict[str, ArtifactCreate] = field(default_factory=dict)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None: ...

    def create_artifact(self, artifact: ArtifactCreate) -> None:
        self.made[str(artifact.key)] = artifact

    def read_flow_run(self, id_: UUID) -> SimpleNamespace:
        if str(id_) not in self.runs:
            raise ObjectNotFound(http_exc=Exception("404"))
        return SimpleNamespace(id=id_, name="earlier")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(module, "get_client", lambda sync_client: made)
    monkeypatch.setattr(module, "say_refused", lambda *news: made.told.append(news))
    return made


RUN_ID = "2131738f-3e7e-473b-8e5d-aa8f42a79419"


def summary_of(run: Run, ran: set[str] | None) -> dict[str, Any]:
    """The summary of a run in which these stages ran, all of them if None, and the others were cached."""
    summary = summarise(run, RUN_ID)
    for stage in summary["stages"]:
        stage["state"] = "ran" if ran is None or stage["name"] in ran else "cached"
    return summary


def test_what_is_published_and_under_which_keys(tmp_path: Path, server: Server) -> None:
    run, folder = with_files(tmp_path)
    summary = summary_of(run, ran=None)
    publish(run, summary)
    made = {key: str(artifact.data) for key, artifact in server.made.items()}
    assert set(made) == {
        f"toy-{what}" for what in (
            "stages", "data", "feed", "feed-plot", "metrics", "loss-curve", "confusion-matrix", "model", "run",
        )
    }  # fmt: skip
    assert {str(artifact.flow_run_id) for artifact in server.made.values()} == {RUN_ID}
    assert made["toy-data"] == "# Data of töy"
    assert json.loads(made["toy-stages"]) == stage_table(summary)
    assert json.loads(made["toy-feed"]) == feed_table(FEED)
    assert "memory-mapped columns" in str(server.made["toy-feed"].description)
    assert "0 threads: least" in str(server.made["toy-feed"].description)
    assert encoded(BARS) in made["toy-feed-plot"]
    assert json.loads(made["toy-metrics"]) == table(SCORES)
    assert encoded(CURVE) in made["toy-loss-curve"]
    assert encoded(MATRIX) in made["toy-confusion-matrix"]
    assert made["toy-model"] == model_page(summary)
    assert made["toy-run"] == page(summary, folder)
    assert {key: artifact.type for key, artifact in server.made.items() if artifact.type != "markdown"} == {
        "toy-stages": "table", "toy-feed": "table", "toy-metrics": "table",
    }  # fmt: skip


def test_what_a_cached_stage_made_is_not_put_on_the_server_again(tmp_path: Path, server: Server) -> None:
    run, _ = with_files(tmp_path)
    summary = summary_of(run, ran={"evaluate"})
    publish(run, summary)
    assert set(server.made) == {
        f"toy-{what}" for what in ("stages", "run", "metrics", "loss-curve", "confusion-matrix")
    }


def test_a_run_that_did_nothing_has_its_page_with_its_stages_alone(tmp_path: Path, server: Server) -> None:
    run, _ = with_files(tmp_path)
    summary = summary_of(run, ran=set())
    publish(run, summary)
    assert set(server.made) == {"toy-run"}
    assert str(server.made["toy-run"].data).count("| cached | 1.2 |") == len(summary["stages"])


def test_a_run_in_which_nothing_changed_needs_no_page_of_its_own(tmp_path: Path, server: Server) -> None:
    run, _ = with_files(tmp_path)
    assert last_shown(run) is None
    first = summarise(run, RUN_ID)
    write_run(run, first)
    again = {**first, "run": str(UUID(int=2)), "stages": [{**stage, "state": "cached"} for stage in first["stages"]]}
    assert shown_before(run, again, last_shown(run)) is None  # this server doesn't know the first
    server.runs.add(RUN_ID)
    assert shown_before(run, first, last_shown(run)) is None  # it did something
    assert shown_before(run, again, last_shown(run)) == RUN_ID
    assert shown_before(run, {**again, "champion": "v9"}, last_shown(run)) is None
    refused = {"promoted": False, "reason": "another"}
    assert shown_before(run, {**again, "decision": refused}, last_shown(run)) is None
    write_run(run, again, shown_before(run, again, last_shown(run)))
    assert shown_before(run, again, last_shown(run)) == RUN_ID  # not the second, which has no page
    other = replace(run.outcomes[0], artifact=replace(run.outcomes[0].artifact, digest="other"))
    changed = Run(run.request, [other, *run.outcomes[1:]])
    assert shown_before(changed, again, last_shown(changed)) is None


@pytest.mark.parametrize("error", [ConnectError("refused"), ReadTimeout("slow")])
def test_a_server_that_doesnt_answer_for_the_page_of_before_fails_no_run(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(self: Server, id_: UUID) -> None:
        raise error

    run, _ = with_files(tmp_path)
    write_run(run, summarise(run, RUN_ID))
    server.runs.add(RUN_ID)
    assert last_shown(run) is not None
    monkeypatch.setattr(Server, "read_flow_run", fails)
    assert last_shown(run) is None


def test_examples_are_shown_where_they_are_pictures(tmp_path: Path, server: Server) -> None:
    run, _ = with_files(tmp_path)
    (run.store.path(artifact_of(run, "validate")) / SAMPLES).write_bytes(b"\x89PNG samples")
    publish(run, summarise(run, RUN_ID))
    assert encoded(b"\x89PNG samples") in str(server.made["toy-samples"].data)


@pytest.mark.parametrize(
    ("decision", "told"),
    [({}, True), ({"promoted": True}, False)], ids=["refused", "promoted"],
)  # fmt: skip
def test_a_refusal_is_told_once_when_it_is_decided(
    tmp_path: Path, server: Server, decision: dict[str, Any], told: bool
) -> None:
    run, _ = with_files(tmp_path)
    summary = summarise(run, RUN_ID)
    summary["decision"].update(decision)
    publish(run, summary)
    assert server.told == ([(RUN_ID, None, "not better: [old] and [/new]")] if told else [])
    server.told.clear()
    summary["stages"][-1]["state"] = "cached"  # the same decision, seen again
    publish(run, summary)
    assert not server.told


def test_a_cleaning_says_what_went_and_how_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("prefect.artifacts.create_table_artifact", lambda **given: made.append(given))
    row = {"what": "records of mnist", "path": "x", "bytes": 1500, "days": 31.26}
    publish_cleaning({"store": "here", "dry_run": False, "bytes": 1500, "removed": [row]})
    (artifact,) = made
    assert artifact["table"] == [{**row, "days": 31.3}]
    assert artifact["description"] == "gone from here: 1, 1,500 bytes"
