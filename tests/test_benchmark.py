"""Reports of benchmarks: medians, paired ratios, spreads."""

from __future__ import annotations

import pytest
from rich.console import Console

from datasets.errors import UnknownNameError
from tasks import benchmark
from tasks.benchmark import Measure, paired


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was twice as slow in the second round; the ratio doesn't see it.
    row = paired("x", "s", [1.0, 2.0, 1.2], [2.0, 4.0, 2.0], against="peer", goal="<= 0.6")
    assert row == Measure("x", 1.2, "s", "peer", 0.5, (0.5, 0.6), "<= 0.6")


def test_a_figure_without_a_peer_shows_its_own_spread() -> None:
    assert paired("x", "s", [3.0, 1.0, 2.0]) == Measure("x", 2.0, "s", "", None, (1.0, 3.0), "")


def test_rounds_must_pair() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired("x", "s", [1.0], [1.0, 2.0], against="peer")


def test_an_unknown_benchmark_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no benchmark 'fed'"):
        benchmark.measure("fed")


def test_the_table_shows_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "name": "ram", "value": 12345.0, "unit": "examples/s", "against": "NumPy", "ratio": 0.95,
        "spread": (0.9, 1.0), "goal": ">= 0.9",
    }  # fmt: skip
    report = {"benchmark": "feed", "machine": {"cores": 2}, "measures": [row]}
    benchmark.show(report, Console(width=160))
    shown = capsys.readouterr().out
    for part in ("cores 2", "ram", "1.234e+04 examples/s", "NumPy", "0.95 (0.9 - 1)", ">= 0.9"):
        assert part in shown
