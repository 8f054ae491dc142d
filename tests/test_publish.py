from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.actions import ArtifactCreate
from test_summary import finished

from tasks import publish as module
from tasks.durable import write_json
from tasks.evaluate import CONFUSION, LOSS_CURVE, METRICS
from tasks.feed import PLAN, PLOT
from tasks.publish import MODEL_TABLE, feed_table, image, key_part, page, publish, table
from tasks.stage import Run
from tasks.summary import artifact_of, summarise
from tasks.validate import PAGE

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
    assert f"| fit | resumed | 1.2 | `key-fit` | `{artifact_of(run, 'fit').digest[:12]}` |" in made
    assert encoded(CURVE) in made
    assert encoded(MATRIX) in made
    assert "## Model" not in made
    (run.store.path(artifact_of(run, "fit")) / MODEL_TABLE).write_text("hidden, 512 parameters\n")
    assert "## Model\n\n```text\nhidden, 512 parameters\n```" in page(summarise(run, "id"), folder)


def test_the_settings_of_the_feed_are_rows_and_the_chosen_one_is_marked() -> None:
    columns = ("examples/s", "start, s", "input of the whole training, s", "remark")
    assert [tuple(row[name] for name in columns) for row in feed_table(FEED)] == [
        (1235.0, 0.012, 9.88, "chosen"), (1235.0, 0.012, 9.88, ""), ("", "", "", "not tried: light"),
    ]  # fmt: skip
    assert feed_table(FEED)[1]["threads"] == 1


def test_what_is_published_and_under_which_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = with_files(tmp_path)
    summary, made = summarise(run, "id"), {}

    def keep(**artifact: Any) -> None:
        made[artifact["key"]] = artifact

    monkeypatch.setattr(module, "create_table_artifact", keep)
    monkeypatch.setattr(module, "create_markdown_artifact", keep)
    publish(run, summary)
    assert set(made) == {
        "toy-metrics", "toy-loss-curve", "toy-confusion-matrix", "toy-run", "toy-feed", "toy-feed-plot",
        "toy-data",
    }  # fmt: skip
    assert made["toy-data"]["markdown"] == "# Data of töy"
    assert made["toy-feed"]["table"] == feed_table(FEED)
    assert "memory-mapped columns" in made["toy-feed"]["description"]
    assert "0 threads: least" in made["toy-feed"]["description"]
    assert encoded(BARS) in made["toy-feed-plot"]["markdown"]
    assert made["toy-metrics"]["table"] == table(SCORES)
    assert encoded(CURVE) in made["toy-loss-curve"]["markdown"]
    assert encoded(MATRIX) in made["toy-confusion-matrix"]["markdown"]
    assert made["toy-run"]["markdown"] == page(summary, folder)
