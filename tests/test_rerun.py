"""What is measured against which peer; the peers themselves are in an environment of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tasks.benchmarks import rerun
from tasks.benchmarks.rerun import dvc, metaflow, peers, report

PEERS = os.environ.get("GRISTMILL_PEERS")


def test_ratios_are_ours_against_each_peer() -> None:
    taken = {"ours": [3.0, 3.0], "ours, own server": [5.0, 5.0], "dvc repro": [1.0, 2.0]}
    with_server, alone, missing = report(taken)
    assert (with_server.ratio, alone.ratio) == (pytest.approx(2.25), pytest.approx(3.75))
    assert with_server.against == alone.against == "dvc repro"
    assert "Metaflow" in missing.name
    assert (missing.ratio, missing.unit) == (None, "not installed: GRISTMILL_PEERS")


def test_a_peer_that_is_not_installed_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRISTMILL_PEERS", raising=False)
    assert peers(tmp_path) == {}
    monkeypatch.setenv("GRISTMILL_PEERS", sys.executable)  # the product's own environment has neither
    assert peers(tmp_path) == {}


@pytest.mark.skipif(not PEERS, reason="GRISTMILL_PEERS isn't set")
def test_their_chains_run_and_dvc_finds_nothing_to_do(tmp_path: Path) -> None:
    assert PEERS is not None
    again = dvc(PEERS, tmp_path / "dvc")
    made = (tmp_path / "dvc" / f"stage{rerun.STAGES}").stat().st_mtime_ns
    assert again() > 0
    assert (tmp_path / "dvc" / f"stage{rerun.STAGES}").stat().st_mtime_ns == made
    assert metaflow(PEERS, tmp_path / "metaflow")() > 0
