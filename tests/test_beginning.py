"""Where a training goes on from; test_lineage and test_mesh do it with real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_states import bits, state_at

from datasets.schema import Recipe
from tasks.beginning import beginning
from tasks.checkpoint import Checkpoints
from tasks.leaves import abstract_like
from tasks.mesh import Mesh
from tasks.metric_log import MetricLog
from tasks.parallel import Parallel
from tasks.silent import NoCheckpoints

COMPONENTS = {"parameters": {"recipe": 1}}
ABSTRACT = abstract_like(state_at(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "toy" / "mine"


def saved(folder: Path, step: int, rows: int) -> None:
    with Checkpoints(folder) as checkpoints:
        log = MetricLog(folder / "log", None)
        log.append([{"step": i, "of": folder.name} for i in range(rows)])
        checkpoints.save(step, state_at(step), meta={"metrics": log.sync()})
        log.close()


def begin(folder: Path, mesh: Any = None, **options: Any) -> Any:
    mesh = mesh or Mesh(Parallel(), 4)
    recipe = Recipe("mlp", batch_size=4)
    with Checkpoints(folder) if mesh.first else NoCheckpoints() as checkpoints:
        return beginning(
            mesh, checkpoints, folder, COMPONENTS, recipe, 100, ABSTRACT, "log", **{"anew": False, **options}
        )


def test_the_first_time_there_is_nothing(folder: Path) -> None:
    assert begin(folder) is None


def test_the_furthest_of_its_own_and_another_mesh_wins(folder: Path) -> None:
    other = folder.with_name("other")
    begin(other)
    begin(folder)
    saved(other, 20, rows=3)
    found = begin(folder)
    assert (found.step, bits(found.state)) == (20, bits(state_at(20)))
    assert (folder / "log").read_bytes() == (other / "log").read_bytes()
    saved(folder, 30, rows=5)
    assert begin(folder).step == 30
    assert begin(other).step == 30
    assert begin(folder.with_name("third"), anew=True) is None


def test_what_another_process_writes_is_left_alone(folder: Path) -> None:
    other = folder.with_name("other")
    begin(other)
    saved(other, 20, rows=3)
    with Checkpoints(other):
        assert begin(folder) is None
    assert begin(folder).step == 20


class Second:
    """A mesh seen from process 1 of two, which is told what the first said."""

    first = False

    def __init__(self, said: str) -> None:
        self._said = said

    def told(self, text: str) -> str:
        assert text == ""
        return self._said


def test_the_others_read_and_verify_the_step_that_the_first_names(folder: Path) -> None:
    assert begin(folder, Second("")) is None
    other = folder.with_name("other")
    saved(other, 20, rows=3)
    before = sorted(other.rglob("*"))
    found = begin(folder, Second("other 20"))
    assert (found.step, bits(found.state), found.meta["metrics"]["bytes"] > 0) == (20, bits(state_at(20)), True)
    assert sorted(other.rglob("*")) == before
    assert not folder.exists()
