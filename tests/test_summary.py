from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import toy
from rich.console import Console

from tasks.artifact import Artifact, Store
from tasks.registry import Registry
from tasks.stage import Outcome, Run
from tasks.summary import artifact_of, rows, show, summarise, told

STATES = {
    "fetch": "cached", "convert": "cached", "validate": "ran", "feed": "cached", "fit": "resumed", "evaluate": "ran",
    "promote": "ran",
}  # fmt: skip
REPORT = {"used": 1, "budget": 1, "seconds": 2.0, "from_cache": False}
FIT_NOTES = {
    "traces": {"train": REPORT, "eval": {**REPORT, "from_cache": True}}, "examples_per_second": 12345.6,
    "skipped_batches": 2, "input_wait": 0.012, "resumed_from": 40,
    "checkpoints": {"saves": 4, "blocked_s": 0.08, "written_s": 1.0, "bytes": 1_260_000, "share": 0.0123},
    "warm_start": None,
}  # fmt: skip
FACTS = {
    "fit": {"steps": 140, "parameters": 101_770},
    "evaluate": {"accuracy": 0.975, "loss": 0.08125, "correct": 975, "examples": 1000},
    "promote": {"promoted": False, "reason": "not better: [old] and [/new]", "test": {"p": 0.5}},
}


def finished(store: Path, about: str = "Toy pictures") -> Run:
    request = toy.request_for(store, toy.dataset(about=about))

    def commit(stage: str) -> Artifact:
        def fill(draft: Any) -> None:
            (draft.folder / "x").write_text(stage)
            draft.facts = FACTS.get(stage, {})

        return toy.job(request, stage).commit(stage, fill)

    notes = {"fit": FIT_NOTES, "evaluate": {"traces": REPORT}}
    because = {"fit": ("lr: 1 -> 2", "code x changed")}
    return Run(
        request,
        [
            Outcome(name, f"key-{name}", state, 1.23456, commit(name), notes.get(name, {}), because.get(name, ()))
            for name, state in STATES.items()
        ],
    )


def test_the_summary_says_what_the_stages_did(tmp_path: Path) -> None:
    run = finished(tmp_path)
    made = summarise(run, "run-id")
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert {stage["name"]: stage["state"] for stage in made["stages"]} == STATES
    assert made["stages"][4] == {
        "name": "fit", "key": "key-fit", "state": "resumed", "seconds": 1.235, "digest": artifact_of(run, "fit").digest,
        "because": ["lr: 1 -> 2", "code x changed"],
    }  # fmt: skip
    expected = {
        "run": "run-id", "dataset": "toy", "about": "Toy pictures", "metrics": FACTS["evaluate"], "champion": None,
        "decision": {"promoted": False, "reason": FACTS["promote"]["reason"]}, "steps": 140, "parameters": 101_770,
        "examples_per_second": 12345.6, "skipped_batches": 2, "input_wait": 0.012,
        "resumed_from": 40, "checkpoints": FIT_NOTES["checkpoints"], "warm_start": None,
        "meshes": [[0, 1, 1]],
        "traces": {"train": [1, 1], "eval": [1, 1], "predict": [1, 1]},
        "compiled": {"train": "compiled", "eval": "from cache", "predict": "compiled"},
        "artifacts": {name: str(Store(tmp_path).root / name / "toy" / f"{name}-1") for name in STATES},
    }  # fmt: skip
    assert {name: made[name] for name in expected} == expected
    assert set(made) == {*expected, "stages"}


def test_the_champion_is_the_one_that_is_in_use(tmp_path: Path) -> None:
    run = finished(tmp_path)
    registry = Registry(run.store, "toy")

    def fill(draft: Any) -> None:
        (draft.folder / "weights").touch()

    version = registry.add(toy.job(run.request, "fit", "other").commit("weights", fill), {})
    registry.crown(version)
    assert summarise(run, "id")["champion"] == "v1"


@pytest.mark.parametrize("about", ["Toy pictures", "Pictures [28 x 28] of [red]cats[/red] and [/closing]"])
def test_the_table_shows_every_text_as_it_is(tmp_path: Path, about: str) -> None:
    made = summarise(finished(tmp_path / "a [bold] folder", about), "id")
    console = Console(file=io.StringIO(), width=4000, color_system=None)
    show(made, console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    for name, value in rows(made):
        assert any(f"│{name} " in line and value in line for line in printed.splitlines()), (name, value)


def test_the_lines_of_the_table(tmp_path: Path) -> None:
    made = dict(rows(summarise(finished(tmp_path), "id")))
    assert {name: made[name] for name in list(made)[1:15]} == {
        "test accuracy": "97.50% (975 of 1,000)", "test loss": "0.0813", "steps": "140", "parameters": "101,770",
        "examples/s": "12,346", "input wait": "1.2% of the training time",
        "traces": "train 1 of 1, eval 1 of 1, predict 1 of 1",
        "programs": "train compiled, eval from cache, predict compiled", "skipped batches": "2",
        "checkpoints": "4 saved of 1.3 MB, each written in 0.25 s and blocking the training for 0.020 s"
        " (1.2% of its time)", "resumed from": "step 40",
        "stages": ", ".join(f"{name} {state}" for name, state in STATES.items()), "cached": "3 of 7",
        "champion": "None (not better: [old] and [/new])",
    }  # fmt: skip


def test_a_fresh_a_warm_and_a_finished_start(tmp_path: Path) -> None:
    made = summarise(finished(tmp_path), "id")
    assert "resumed from" not in dict(rows({**made, "resumed_from": None}))
    start = {"loaded": ["hidden.bias"], "fresh": ["head.bias"], "left": []}
    lines = dict(rows({**made, "warm_start": start, "checkpoints": {**made["checkpoints"], "saves": 0}}))
    assert lines["warm start"] == "loaded: hidden.bias; fresh: head.bias; not taken: nothing"
    assert lines["checkpoints"] == "none saved: all steps were done"


def test_a_run_without_training_time_has_no_rates(tmp_path: Path) -> None:
    made = summarise(finished(tmp_path), "id")
    lines = dict(rows({**made, "examples_per_second": None, "input_wait": None}))
    assert (lines["examples/s"], lines["input wait"]) == ("-", "-")


def test_a_decision_that_was_rolled_back_by_hand_is_told_as_that() -> None:
    decision = {"promoted": True, "reason": "better", "version": "v3", "test": {}}
    assert told(decision, "v3") == {"promoted": True, "reason": "better"}
    assert told({**decision, "version": None}, "v2") == {"promoted": True, "reason": "better"}
    assert told(decision, "v2") == {
        "promoted": False, "reason": "v3 was promoted by this decision, and v2 was made the champion by hand since"
    }  # fmt: skip
    assert told({**decision, "promoted": False}, "v2")["reason"] == "better"
