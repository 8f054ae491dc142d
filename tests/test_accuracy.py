"""The benchmark of time to an accuracy: what is compared, what is said where nothing can be, and when a run is over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from datasets.errors import TrainingError
from tasks.benchmarks import accuracy
from tasks.benchmarks.accuracy import SCRIPTS, compared, ours, peer, run


def test_without_raw_files_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRISTMILL_MNIST", raising=False)
    assert [row.unit for row in run()] == ["not measured: GRISTMILL_MNIST isn't set"]
    monkeypatch.delenv("GRISTMILL_PEERS", raising=False)
    assert peer("torch_mnist", "anywhere") == "GRISTMILL_PEERS isn't set"


def test_the_flow_takes_the_options_and_its_failure_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the flow failed") as caught:
        ours(str(tmp_path / "no-such-folder"))
    assert "no-such-folder" in caught.value.facts["said"]


def test_rounds_are_paired_and_what_is_missing_is_said() -> None:
    torch, keras, jax = SCRIPTS
    runs = {
        "ours": [{0.97: 10.0, 0.99: 30.0}, {0.97: 20.0, 0.99: 40.0}], torch: [{0.97: 5.0, 0.99: 20.0}] * 2,
        keras: ["No module named 'keras'"] * 2, jax: [{0.97: 10.0}, {0.97: 10.0, 0.99: 50.0}],
    }  # fmt: skip
    rows = {(row.name, row.against): row for row in compared(0.97, runs)}
    assert rows["seconds to 97%", torch].ratio == 3.0
    assert rows["seconds to 97%", torch].spread == (2.0, 4.0)
    assert rows["seconds to 97%", jax].ratio == 1.5
    assert "No module named 'keras'" in rows[f"seconds to 97% of {keras}", ""].unit
    rows = {(row.name, row.against): row for row in compared(0.99, runs)}
    assert rows[f"seconds to 99% of {jax}", ""].unit == "not reached in 1 rounds"
    runs["ours"][0] = {0.97: 10.0}
    assert [row.unit for row in compared(0.99, runs)] == ["not reached in 1 of 2 rounds"]


def test_a_peer_is_timed_to_each_target_and_ended_at_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"say({a})" for a in (0.5, 0.975, 0.96, 0.995))
    (tmp_path / "slow.py").write_text(
        "import json, time\n"
        "def say(a):\n    time.sleep(0.05)\n    print(json.dumps({'step': 1, 'accuracy': a}), flush=True)\n"
        f"{lines}\ntime.sleep(60)\n"
    )
    (tmp_path / "absent.py").write_text('print(\'{"missing": "no torch"}\')')
    monkeypatch.setattr(accuracy, "PEERS", tmp_path)
    monkeypatch.setenv("GRISTMILL_PEERS", sys.executable)
    times = peer("slow", "")
    assert isinstance(times, dict)
    assert 0 < times[0.97] < times[0.99] < 30
    assert peer("absent", "") == "no torch"
