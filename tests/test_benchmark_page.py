from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tasks import benchmark_page
from tasks.benchmark import Measure
from tasks.benchmark_page import measure_all, plot, verdict

GOOD = Measure("read", 10.0, "MB/s", "bare", 0.9, (0.8, 1.0), ">= 0.8")
POOR = Measure("write", 3.0, "MB/s", "bare", 0.5, (0.4, 0.6), ">= 0.8")
ALONE = Measure("memory", 1.2, "GB", goal="< 1.5")


def done(command: list[str], *measures: Measure, status: int = 0) -> subprocess.CompletedProcess[str]:
    report = {"benchmark": command[3], "machine": {"cores": 2}, "measures": [asdict(one) for one in measures]}
    return subprocess.CompletedProcess(command, status, "noise\n" + json.dumps(report) + "\n")


def test_the_page_shows_every_figure_and_what_could_not_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if command[3] == "slow":
            raise subprocess.TimeoutExpired(command, 3600)
        return done(command, GOOD, POOR, ALONE, status=int(command[3] == "broken"))

    monkeypatch.setattr(benchmark_page.subprocess, "run", run)
    result = measure_all(["feed", "broken", "slow"], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| read | 10 MB/s | bare | 0.9 (0.8 - 1) | >= 0.8 | yes |" in text
    assert "| write | 3 MB/s | bare | 0.5 (0.4 - 0.6) | >= 0.8 | no |" in text
    assert "| memory | 1.2 GB |  |  | < 1.5 | yes |" in text
    assert "cores 2" in text
    assert "![feed](benchmark-feed.png)" in text
    assert (tmp_path / "benchmark-feed.png").read_bytes().startswith(b"\x89PNG")
    assert "## broken\n\n0 s in all\n\n**Not measured**: exit status 1" in text
    assert "**Not measured**: TimeoutExpired" in text
    assert [report["benchmark"] for report in result["reports"]] == ["feed", "broken", "slow"]


@pytest.mark.parametrize(
    ("goal", "ratio", "expected"),
    [("<= 1.15", 1.15, "yes"), ("<= 1.15", 1.16, "no"), ("> 2", 2.0, "no"), ("< 5 %", 4.0, "yes"), ("", 1.0, ""),
     ("as before", 1.0, "")],
)  # fmt: skip
def test_a_goal_is_met_by_the_median(goal: str, ratio: float, expected: str) -> None:
    assert verdict({"goal": goal, "ratio": ratio, "value": 99.0}) == expected


def test_equal_reports_give_equal_plots() -> None:
    report = {"benchmark": "feed", "measures": [asdict(GOOD), asdict(POOR), asdict(ALONE)]}
    assert plot(report) == plot(report) != plot({**report, "measures": [asdict(GOOD)]})
