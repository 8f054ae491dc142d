"""A sweep as a table, and what became of its winner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.decision import shown


def said(changes: Mapping[str, Any]) -> str:
    """Changes in words: "learning_rate=0.001 model=cnn"."""
    return " ".join(f"{name}={value}" for name, value in changes.items()) or "the recipe as it is"


def table_of(made: dict[str, Any]) -> list[dict[str, str]]:
    """One row a recipe, the best first, those that failed last."""
    sign = 1 if made["lower_is_better"] else -1
    order = sorted(made["rows"], key=lambda row: (row["mean"] is None, sign * (row["mean"] or 0.0)))
    return [
        {
            "recipe": said(row["changes"]),
            f"{made['metric']}, {made['split']}": shown(row["mean"]) if row["mean"] is not None else "failed",
            f"{made['confidence']:.0%} interval of the mean": "" if row["interval"] is None else shown(row["interval"]),
            "each seed": " ".join("failed" if score is None else shown(score) for score in row["scores"]),
            "from the cache": f"{row['cached']} of {len(row['scores'])}",
            "seconds": f"{row['seconds']:.1f}",
            "": "winner" if row["changes"] == made["winner"]["changes"] else "",
        }
        for row in order
    ]


def show(made: dict[str, Any], console: Console) -> None:
    """Prints the table, and what became of the winner."""
    rows = table_of(made)
    table = Table(title=f"sweep/{made['dataset']}", title_justify="left")
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    console.print(table)
    console.print(f"{made['note'][0].upper()}{made['note'][1:]}.", markup=False)
    decision = made["decision"]
    verdict = "promoted" if decision["promoted"] else "not promoted"
    for group in made["groups"]:
        console.print(f"{_grouped(group)}.", markup=False)
    winner = made["winner"]
    trained = f", as a training of its own {made['metric']} {shown(winner['score'])}" if _ranked(made) else ""
    console.print(f"Winner, seed {winner['seed']}{trained}: {verdict} ({decision['reason']}).", markup=False)
    console.print(f"Champion: {made['champion'] or 'none'}.", markup=False)


def _ranked(made: Mapping[str, Any]) -> bool:
    """Whether the winner's row is a ranking's, so that what went to the gate was trained apart from it."""
    return any(row["together"] for row in made["rows"] if row["changes"] == made["winner"]["changes"])


def _grouped(group: Mapping[str, Any]) -> str:
    """How a group of members was trained, and why, in words."""
    if not group["together"]:
        return f"{group['members']} members one after the other: {group['why']}"
    programs = group["programs"]
    parts = "one program" if len(programs) == 1 else f"{len(programs)} programs (what memory allows)"
    traces = ", ".join(f"{one['used']} of {one['budget']}" for one in programs)
    seconds = sum(one["seconds"] for one in programs)
    compiled = sum(one["compiled_s"] for one in programs)
    return (
        f"{group['members']} members as {parts}, {group['state']}: {compiled:.1f} s to compile (traces {traces}),"
        f" {seconds:.1f} s of steps ({group['why']}); their scores only rank, and the winner was trained apart from it"
    )
