"""Plans: what differs, what can't be known yet, what they print. test_train_flow holds them against runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from datasets.errors import ParameterError
from flows.plan import plan
from tasks.planning import show


def test_an_empty_store_is_planned_and_not_made(tmp_path: Path) -> None:
    planned = plan("mnist", store=str(tmp_path / "store"))
    assert [row["will"] for row in planned["stages"]] == ["run"] * 7
    assert [row["certain"] for row in planned["stages"]] == [True] + [False] * 6
    assert planned["stages"][0]["because"] == [{"component": "artifact", "old": None, "new": "never made"}]
    assert planned["stages"][1]["because"] == [{"component": "inputs.raw", "old": None, "new": "not made yet"}]
    assert not (tmp_path / "store").exists()


def test_a_wrong_request_is_refused_as_by_a_run(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="epochs can't be 0"):
        plan("mnist", store=str(tmp_path), epochs=0)


def test_the_table_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    because = [
        {"component": "code.tasks.convert:convert_raw", "old": "1", "new": "2"},
        {"component": "parameters.recipe.learning_rate", "old": 0.1, "new": 0.2},
        {"component": "inputs.raw", "old": None, "new": "not made yet"},
        {"component": "artifact", "old": None, "new": "cached artifact missing: there"},
    ]
    row = {"name": "fit", "will": "resume", "from_step": 12, "because": because, "seconds": 1.25, "bytes": 2_000_000,
           "certain": True}  # fmt: skip
    other = {**row, "name": "evaluate", "will": "run", "certain": False}
    show({"dataset": "mnist", "stages": [row, other]}, Console(width=160))
    shown = capsys.readouterr().out
    for part in (
        "resume at step 12", "code tasks.convert:convert_raw changed", "parameters.recipe.learning_rate: 0.1 -> 0.2",
        "raw: not made yet", "cached artifact missing: there", "1.2 s, 2.0 MB",
        "run, if that changes",
    ):  # fmt: skip
        assert part in shown
