"""The whole flow in one process: cached, run again where something is gone, resumed, refused when not better."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import toy
from flow_process import digests, states
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, FlowRunFilter, FlowRunFilterId

from datasets.errors import DataError, RunTimeout, TransientError
from flows.plan import plan
from flows.train import train
from tasks.artifact import Artifact, Store
from tasks.handover import hand_over
from tasks.stage import ASKED_FOR
from tasks.step import TrainStep

STAGES = ("fetch", "convert", "validate", "feed", "fit", "evaluate", "promote")


@pytest.fixture(scope="module")
def first(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A first run in an empty store."""
    return run(tmp_path_factory.mktemp("store"))


def run(store: Path, **parameters: Any) -> dict[str, Any]:
    """A run, which must do what its plan said before."""
    parameters = {"model": "mlp", "epochs": 1, "store": str(store), "checkpoint_every": 20, **parameters}
    before = sorted(path for path in store.rglob("*"))
    planned = {row["name"]: row for row in plan("mnist", **parameters)["stages"]}
    assert sorted(path for path in store.rglob("*")) == before, "a plan touched the store"
    summary = json.loads(json.dumps(train("mnist", **parameters), allow_nan=False))
    done = {"cached": "cached", "ran": "run", "resumed": "resume"}
    for name, state in states(summary).items():
        # What depends on bytes that aren't made yet is planned to run, and found in the cache if they come out equal
        assert done[state] == planned[name]["will"] or (not planned[name]["certain"] and state == "cached"), name
    return summary


@pytest.fixture
def store(first: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of the first run's store."""
    root = Path(first["artifacts"]["fetch"]).parents[2]
    return Path(shutil.copytree(root, tmp_path / "store"))


def folder(store: Path, summary: dict[str, Any], stage: str) -> Path:
    return store / Path(summary["artifacts"][stage]).relative_to(Path(summary["artifacts"]["fetch"]).parents[2])


def ran(summary: dict[str, Any]) -> list[str]:
    return [name for name, state in states(summary).items() if state != "cached"]


def test_the_first_run_does_every_stage_and_learns(first: dict[str, Any]) -> None:
    assert states(first) == dict.fromkeys(STAGES, "ran")
    assert first["metrics"]["examples"] == 1000
    assert first["metrics"]["accuracy"] == first["metrics"]["correct"] / 1000 > 0.8
    assert first["champion"] == "v1"
    assert first["decision"] == {"promoted": True, "reason": "no champion"}
    assert first["steps"] == 9000 // 128
    assert first["traces"] == {"train": [1, 1], "eval": [1, 1], "predict": [1, 1]}
    assert first["skipped_batches"] == 0
    assert all(Path(path, "manifest.json").is_file() for path in first["artifacts"].values())


def test_what_prefect_shows(first: dict[str, Any], prefect_server: str) -> None:
    this_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[first["run"]]))
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(first["run"])
        artifacts = {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=this_run)}
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id])))
    assert flow_run.name == "mnist model=mlp epochs=1"
    assert {task.name for task in tasks} == {f"{stage} mnist" for stage in STAGES}
    shown = (
        "stages", "data", "samples", "feed", "feed-plot", "metrics", "loss-curve", "confusion-matrix", "mistakes",
        "decision", "model", "run",
    )  # fmt: skip
    # Whether a stage is long enough to have a bar depends on the machine
    assert {key for key in artifacts if not str(key).endswith("-progress")} == {f"mnist-{what}" for what in shown}
    assert "sample" in str(artifacts["mnist-run"].data)
    assert str(artifacts["mnist-loss-curve"].data).count("data:image/png;base64,") == 1
    assert f"{first['metrics']['accuracy']:.2%}" in str(artifacts["mnist-run"].data)


def test_the_same_again_does_nothing_and_names_the_run_that_shows_all(
    first: dict[str, Any], store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="gristmill"):
        again = run(store)
    assert f"nothing changed since a run whose page shows all: {first['run']}" in caplog.text
    assert f"from the cache: {', '.join(STAGES)}\n" in caplog.text
    with get_client(sync_client=True) as client:
        of_this = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[again["run"]]))
        assert client.read_artifacts(artifact_filter=of_this) == []
    assert ran(again) == []
    assert digests(again) == digests(first)
    assert again["metrics"] == first["metrics"]
    assert again["champion"] == "v1"


def test_a_cached_run_imports_nothing_that_only_work_needs(first: dict[str, Any], store: Path) -> None:
    arguments = ["train", "mnist", "--model=mlp", "--epochs=1", "--checkpoint-every=20", f"--store={store}", "--json"]
    code = (
        f"import sys, runpy\nsys.argv = {arguments}\n"
        "try:\n    runpy.run_module('flows.train', run_name='__main__')\n"
        "except SystemExit as end:\n    print('status', end.code)\n"
        "print('loaded', sorted({'jax', 'grain', 'orbax', 'flax', 'matplotlib', 'sklearn'} & set(sys.modules)))\n"
    )
    done = toy.run_python(code)
    summary, *end = done.stdout.strip().splitlines()[-3:]
    assert end == ["status 0", "loaded []"], done.stderr
    assert set(states(json.loads(summary)).values()) == {"cached"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_deleted_artifact_is_made_again_and_nothing_else(first: dict[str, Any], store: Path, stage: str) -> None:
    shutil.rmtree(folder(store, first, stage))
    again = run(store)
    assert ran(again) == [stage]
    assert digests(again) == digests(first)


def test_an_edited_artifact_is_made_again(first: dict[str, Any], store: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard = next(folder(store, first, "convert").glob("*.array_record"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with caplog.at_level("WARNING", "gristmill"):
        again = run(store)
    assert ran(again) == ["convert"]
    assert digests(again) == digests(first)
    assert f"convert runs again: cached a file of an artifact was edited: {shard}" in caplog.text


def test_a_lost_champion_is_crowned_again(first: dict[str, Any], store: Path) -> None:
    (store / "models" / "mnist" / "champion.json").unlink()
    again = run(store)
    assert ran(again) == ["promote"]
    assert again["champion"] == "v1"


def test_the_store_can_be_moved(first: dict[str, Any], store: Path) -> None:
    moved = store.rename(store.with_name("elsewhere"))
    assert ran(run(moved)) == []


def test_another_learning_rate_trains_anew_and_is_refused_when_it_is_worse(first: dict[str, Any], store: Path) -> None:
    pointer = store / "models" / "mnist" / "champion.json"
    before = pointer.read_bytes()
    worse = run(store, learning_rate=1e-6)
    assert ran(worse) == ["fit", "evaluate", "promote"]
    assert worse["decision"]["promoted"] is False
    assert "not better" in worse["decision"]["reason"]
    assert worse["champion"] == "v1"
    assert pointer.read_bytes() == before
    assert ran(run(store, learning_rate=1e-6)) == []


@pytest.mark.slow
def test_a_batch_size_touches_the_feed_too(first: dict[str, Any], store: Path) -> None:
    assert ran(run(store, batch_size=64)) == ["feed", "fit", "evaluate", "promote"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"refresh": "fit"}, ("fit",)),
        pytest.param({"from_stage": "convert"}, STAGES[1:], marks=pytest.mark.slow),
        ({"refresh": "fetch"}, ("fetch",)),
    ],
)
def test_what_is_asked_for_runs_again_from_its_start_with_the_same_bytes(
    first: dict[str, Any], store: Path, said: pytest.LogCaptureFixture, asked: dict[str, str], expected: tuple[str, ...]
) -> None:
    again = run(store, **asked)
    assert states(again) == dict.fromkeys(STAGES, "cached") | dict.fromkeys(expected, "ran")  # not "resumed"
    assert digests(again) == digests(first)
    assert [text for text in said.messages if "asked for" in text] == [
        f"{stage} runs again: {ASKED_FOR}" for stage in expected
    ]
    assert not [text for text in said.messages if "other bytes" in text]
    assert ran(run(store)) == []


@pytest.mark.slow
def test_other_bytes_than_the_last_time_are_said(
    first: dict[str, Any], store: Path, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.training.MODEL_TABLE", "another.txt")  # without the key noticing, as a bad library might
    again = train("mnist", model="mlp", epochs=1, store=str(store), refresh="fit")  # no plan can know of this
    assert digests(again)["fit"] != digests(first)["fit"]
    assert [text for text in said.messages if text.startswith("fit gave other bytes than the last time")]
    assert ran(again) == ["fit", "evaluate", "promote"], "nothing may rest on the weights of before"


def test_a_run_that_takes_too_long_saves_is_timed_out_and_gone_on_with(
    first: dict[str, Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder(store, first, "fit"))
    shutil.rmtree(store / "checkpoints")
    whole_step, steps = TrainStep.__call__, []

    def too_late(self: TrainStep, carry: Any, batch: Any) -> Any:
        steps.append(1)
        if len(steps) == 30:
            os.kill(os.getpid(), signal.SIGALRM)  # as the alarm clock does, but at the same step every time
        return whole_step(self, carry, batch)

    with monkeypatch.context() as patched:
        patched.setattr(TrainStep, "__call__", too_late)
        state = train(
            "mnist", model="mlp", epochs=1, store=str(store), checkpoint_every=1000, timeout=3600.0, return_state=True
        )
    assert (state.name, state.type.value) == ("TimedOut", "FAILED")
    assert len(steps) == 30
    with pytest.raises(RunTimeout):
        state.result()
    again = run(store)
    assert (states(again)["fit"], again["resumed_from"]) == ("resumed", 30)
    assert digests(again) == digests(first)


def failing_at_the_50th(error: Exception) -> tuple[list[int], Any]:
    """A train step that fails once, at its 50th call, and the calls so far."""
    whole_step, steps = TrainStep.__call__, []

    def failing(self: TrainStep, carry: Any, batch: Any) -> Any:
        steps.append(1)
        if len(steps) == 50:
            raise error
        return whole_step(self, carry, batch)

    return steps, failing


def test_a_fit_that_fails_half_way_goes_on_from_its_checkpoint(
    first: dict[str, Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder(store, first, "fit"))
    shutil.rmtree(store / "checkpoints")
    steps, failing = failing_at_the_50th(DataError("a disk died"))
    with monkeypatch.context() as patched:
        patched.setattr(TrainStep, "__call__", failing)
        with pytest.raises(DataError, match="a disk died"):
            run(store)
    assert len(steps) == 50, "a data error was tried again"
    again = run(store)
    assert states(again) == {**dict.fromkeys(STAGES, "cached"), "fit": "resumed"}
    assert digests(again) == digests(first)


def test_trouble_that_passes_is_tried_again_from_the_checkpoint(
    first: dict[str, Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder(store, first, "fit"))
    shutil.rmtree(store / "checkpoints")
    _, failing = failing_at_the_50th(TransientError("the network is away"))
    monkeypatch.setattr(TrainStep, "__call__", failing)
    monkeypatch.setattr("tasks.cache.FIRST_PAUSE", 0.01)
    # The plan can't know of the trouble, so this isn't held against it
    again = train("mnist", model="mlp", epochs=1, store=str(store), checkpoint_every=20)
    assert states(again)["fit"] == "resumed"
    assert digests(again) == digests(first)
    assert again["traces"]["train"] == [1, 1]


def test_shards_that_were_not_validated_are_refused(first: dict[str, Any], store: Path) -> None:
    from datasets.errors import StoreError
    from tasks.feed import check_vouched

    rows = {row["name"]: row for row in first["stages"]}
    report = Artifact("report", "mnist", rows["validate"]["key"], rows["validate"]["digest"])
    others = Artifact("records", "mnist", rows["convert"]["key"], "0" * 64)
    with pytest.raises(StoreError, match="not validated"):
        check_vouched(Store(store), others, report)


def test_a_champion_that_was_rolled_back_by_hand_stays_so(
    first: dict[str, Any], store: Path, said: pytest.LogCaptureFixture
) -> None:
    better = run(store, epochs=3)
    assert "fit runs: parameters.recipe.epochs: 1 -> 3" in said.messages
    assert better["champion"] == "v2", better["decision"]
    assert hand_over("mnist", rollback=True, store=str(store))["champion"] == "v1"
    again = run(store, epochs=3)
    assert ran(again) == []
    assert again["champion"] == "v1"
