"""All benchmarks after one another, each in a process of its own, into a page of tables and plots."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tasks.document import table
from tasks.request import CHECKOUT

PAGE = CHECKOUT / "assets" / "benchmarks.md"
LIMIT = 3600  # seconds of one benchmark


def measure_all(names: list[str], page: Path = PAGE) -> dict[str, Any]:
    """Runs the benchmarks and writes the page with a plot of each beside it.

    One that fails or takes too long is named with its last words; the others are measured all the same.

    Args:
        names: Files under `tasks/benchmarks/`.
        page: The Markdown file.
    """
    reports = [_measured(name) for name in names]
    page.parent.mkdir(parents=True, exist_ok=True)
    for report in reports:
        if any(row["ratio"] is not None for row in report["measures"]):
            (page.parent / _plot_of(report)).write_bytes(plot(report))
    page.write_text(text(reports), encoding="utf-8")
    return {"benchmark": "all", "page": str(page), "reports": reports}


def _measured(name: str) -> dict[str, Any]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "flows.benchmark", name, "--json"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        report = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        failed = None if report else f"exit status {done.returncode}: {done.stdout[-500:].strip()}"
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
        report, failed = {}, f"{type(error).__name__}: {error}"
    return {
        "benchmark": name, "machine": {}, "measures": [], **report, "failed": failed,
        "seconds": round(time.perf_counter() - began),
    }  # fmt: skip


def text(reports: list[dict[str, Any]]) -> str:
    """The page."""
    parts = [
        "# Benchmarks\n\nWritten by `python -m flows.benchmark all`. A ratio is the median over rounds in which both "
        "sides ran one after the other, with the least and the greatest; a figure without a peer stands alone."
    ]
    for report in reports:
        facts = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
        part = f"## {report['benchmark']}\n\n{facts + ', ' if facts else ''}{report['seconds']} s in all"
        if report["failed"]:
            parts.append(f"{part}\n\n**Not measured**: {report['failed']}")
            continue
        rows = [
            [row["name"], f"{row['value']:,.4g} {row['unit']}", row["against"], _ratio(row), row["goal"], verdict(row)]
            for row in report["measures"]
        ]
        shown = table(["measure", "value", "against", "ratio (least - greatest)", "goal", "met"], rows)
        drawn = any(row["ratio"] is not None for row in report["measures"])
        parts.append(f"{part}\n\n{shown}" + (f"\n\n![{report['benchmark']}]({_plot_of(report)})" if drawn else ""))
    return "\n\n".join(parts) + "\n"


def verdict(row: dict[str, Any]) -> str:
    """Whether a goal is met, by the median; "" without a goal that is a number."""
    sign, _, limit = row["goal"].replace("%", "").partition(" ")
    try:
        wanted = float(limit)
    except ValueError:
        return ""
    value = row["value"] if row["ratio"] is None else row["ratio"]
    met = {">=": value >= wanted, "<=": value <= wanted, "<": value < wanted, ">": value > wanted}.get(sign)
    return "" if met is None else "yes" if met else "no"


def plot(report: dict[str, Any]) -> bytes:
    """A PNG: each ratio with its spread, and a mark where its goal is."""
    rows = [row for row in report["measures"] if row["ratio"] is not None]
    figure = Figure(figsize=(10, 0.9 + 0.45 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for at, row in enumerate(rows):
        low, high = row["spread"]
        colour = {"yes": "#3a7d44", "no": "#c2571a", "": "#27548a"}[verdict(row)]
        axes.plot([low, high], [at, at], color=colour, linewidth=3, alpha=0.45)
        axes.plot([row["ratio"]], [at], "o", color=colour)
        if verdict(row):
            axes.plot([float(row["goal"].split()[1])], [at], "|", color="black", markersize=14)
    names = [textwrap.fill(f"{row['name']} / {row['against']}", 64) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.set(xlabel="ratio; a bar is the goal", xscale="log")
    axes.grid(axis="x", alpha=0.3)
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    return file.getvalue()


def _ratio(row: dict[str, Any]) -> str:
    spread = f"({row['spread'][0]:.3g} - {row['spread'][1]:.3g})" if row["spread"] else ""
    return f"{row['ratio']:.3g} {spread}".strip() if row["ratio"] is not None else spread


def _plot_of(report: dict[str, Any]) -> str:
    return f"benchmark-{report['benchmark']}.png"
