"""What a benchmark reports: ratios against a peer or a limit that was measured in the same run, with their spread."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from datasets.errors import UnknownNameError
from tasks.benchmark_page import measure_all
from tasks.feed import machine

FOLDER = Path(__file__).parent / "benchmarks"
ALL = "all"


@dataclass(frozen=True)
class Measure:
    """One figure.

    Attributes:
        name: What was measured.
        value: Median over the rounds.
        unit: Of the value.
        against: Name of the peer or limit, or "" for a figure that stands alone.
        ratio: Median over the rounds of ours / theirs, as the goal states it; None without a peer.
        spread: Least and greatest ratio over the rounds, or of the value without a peer.
        goal: Such as ">= 0.9"; "" for none.
    """

    name: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    goal: str = ""


def paired(
    name: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float] | None = None,
    *,
    against: str = "",
    goal: str = "",
) -> Measure:
    """A figure from rounds in which ours and theirs ran one after the other, so that noise hits both.

    Args:
        name: What was measured.
        unit: Of the values.
        ours: One value a round.
        theirs: One value a round, of the peer.
        against: Name of the peer.
        goal: What is wanted of the ratio.
    """
    if theirs is None:
        return Measure(name, statistics.median(ours), unit, spread=(min(ours), max(ours)), goal=goal)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Measure(
        name, statistics.median(ours), unit, against, statistics.median(ratios), (min(ratios), max(ratios)), goal
    )


def in_turns(one: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """What two measurements give, one right after the other in each round; by turns the one and the other is first."""
    both, found = (one, other), ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            gc.collect()  # or one would clear away what the other left
            found[which].append(both[which]())
    return found


def names() -> list[str]:
    """The benchmarks: the files under `tasks/benchmarks/`."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def measure(name: str) -> dict[str, Any]:
    """Runs a benchmark and gives its report as JSON; "all" runs every one and writes the page of them.

    Raises:
        UnknownNameError: There is no such benchmark.
    """
    if name == ALL:
        return measure_all(names())
    if name not in names():
        raise UnknownNameError.among("benchmark", name, [*names(), ALL])
    run: Callable[[], list[Measure]] = importlib.import_module(f"tasks.benchmarks.{name}").run
    return {"benchmark": name, "machine": described_machine(), "measures": [asdict(measure) for measure in run()]}


def described_machine() -> dict[str, Any]:
    """What the figures hold for."""
    load = os.getloadavg()
    return {**machine(), "python": platform.python_version(), "load_before": round(load[0], 2)}


def show(report: dict[str, Any], console: Console) -> None:
    """Prints a report as a table, or those of all benchmarks."""
    if report["benchmark"] == ALL:
        for one in report["reports"]:
            show(one, console)
        console.print(f"written: {report['page']}")
        return
    if report.get("failed"):
        console.print(f"benchmark {report['benchmark']} was not measured: {report['failed']}")
        return
    facts = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    table = Table(
        "measure", "value", "against", "ratio (least - greatest)", "goal", title=f"benchmark {report['benchmark']}"
    )
    for row in report["measures"]:
        spread = f" ({row['spread'][0]:.3g} - {row['spread'][1]:.3g})" if row["spread"] else ""
        ratio = f"{row['ratio']:.3g}{spread}" if row["ratio"] is not None else spread.strip()
        table.add_row(row["name"], f"{row['value']:,.4g} {row['unit']}", row["against"], ratio, row["goal"])
    console.print(facts)
    console.print(table)
