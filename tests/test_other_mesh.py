"""Which trainings are the same but for their mesh; test_mesh and test_processes go on with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.other_mesh import NOTE, meshes_said, segments, training_of, unfinished
from tasks.planning import Plan
from tasks.request import check

COMPONENTS = {"code": "c", "parameters": {"recipe": {"seed": 1}}}
FOUR = {"code": "c", "parameters": {"recipe": {"seed": 1}, "mesh": {"devices": 4}}}


def test_only_the_mesh_may_differ() -> None:
    assert training_of(COMPONENTS) == training_of(FOUR) != None  # noqa: E711
    others: list[dict[str, Any]] = [
        {**COMPONENTS, "code": "d"}, {**COMPONENTS, "parameters": {"recipe": {"seed": 2}}}, {**COMPONENTS, "inputs": {}}
    ]  # fmt: skip
    assert len({training_of(other) for other in [COMPONENTS, *others]}) == 4
    assert training_of({"code": "c"}) is None


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Two unfinished trainings of the same thing, one finished, and one of something else."""
    folder = tmp_path / "checkpoints" / "mnist"
    for name, components in {"a": COMPONENTS, "b": FOUR, "done": FOUR, "other": {**FOUR, "code": "d"}}.items():
        (folder / name / "40").mkdir(parents=True)
        (folder / name / NOTE).write_text(str(training_of(components)))
    (folder / "without-a-note").mkdir()
    (tmp_path / "weights" / "mnist" / "done").mkdir(parents=True)
    return folder


def test_the_unfinished_of_the_same_training_are_found(checkpoints: Path) -> None:
    def names(key: str, components: Any = COMPONENTS) -> list[str]:
        return [folder.name for folder in unfinished(checkpoints / key, components)]

    assert names("new") == ["a", "b"]
    assert names("a") == ["b"]
    assert names("new", {"code": "c"}) == []
    assert list(unfinished(checkpoints.parent / "absent" / "new", COMPONENTS)) == []


def test_a_plan_sees_what_a_run_would_go_on_from(checkpoints: Path, tmp_path: Path) -> None:
    plan = Plan(check("mnist", store=tmp_path))
    (checkpoints / "b" / "60").mkdir()
    assert plan.checkpoint("new", COMPONENTS) == 60
    (checkpoints / "mine" / "80").mkdir(parents=True)
    assert plan.checkpoint("mine", COMPONENTS) == 80
    assert plan.checkpoint("new", {**COMPONENTS, "code": "e"}) is None


@pytest.mark.parametrize(
    ("restored", "want"),
    [
        (None, [[0, 1, 4]]),
        ((30, {}), [[0, 1, 1], [30, 1, 4]]),
        ((30, {"meshes": [[0, 1, 4]]}), [[0, 1, 4]]),
        ((30, {"meshes": [[0, 1, 4], [10, 2, 1]]}), [[0, 1, 4], [10, 2, 1], [30, 1, 4]]),
    ],
)
def test_the_history_of_meshes(restored: Any, want: list[list[int]]) -> None:
    found: Any = None if restored is None else SimpleNamespace(step=restored[0], meta=restored[1])
    assert segments(found, {"processes": 1, "devices": 4}) == want


def test_the_history_in_words() -> None:
    assert meshes_said([[0, 1, 4]]) == "4"
    assert (
        meshes_said([[0, 1, 4], [1200, 2, 1], [1300, 1, 1]])
        == "4; from step 1,200 on 2 processes x 1; from step 1,300 on 1"
    )
