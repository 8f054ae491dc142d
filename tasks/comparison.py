"""Several runs beside each other: what they were asked that differs, how good they are, what they cost, curves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets.errors import ParameterError
from datasets.gate import METRICS as METRICS_OF_CLASSES
from datasets.gate import NUMBER_METRICS
from tasks.artifact import Store
from tasks.curves import overlaid
from tasks.decision import shown
from tasks.document import Document
from tasks.durable import read_json, write_bytes
from tasks.evaluate import METRICS
from tasks.metric_log import read_metrics
from tasks.request import store_root
from tasks.run_page import HISTORY
from tasks.run_record import artifact, find_run

MEASURED = tuple(dict.fromkeys((*METRICS_OF_CLASSES, *NUMBER_METRICS)))
SUFFIXES = (".html", ".png")


def compare_runs(runs: list[str], *, out: str | None = None, store: str | None = None) -> dict[str, Any]:
    """What several runs differ in, as JSON; with `out` also as a page or a picture of the curves.

    Args:
        runs: Two or more; see `find_run`.
        out: File to write: .html for table and curves, .png for the curves.
        store: Folder of the artifacts; see `store_root`.

    Returns:
        runs (ids), names, parameters that differ, data, metrics with intervals and cost: each a row by name, with one
        value a run, None where a run has none; and the path of what was written.

    Raises:
        UsageError: Fewer than two runs, one that isn't there, or a file of another kind.
    """
    if len(runs) < 2:
        raise ParameterError("there is nothing to compare with", parameter="runs", got=runs, expected="two or more")
    if out is not None and Path(out).suffix not in SUFFIXES:
        raise ParameterError("no such kind of file", parameter="out", got=out, expected=" or ".join(SUFFIXES))
    artifacts = Store(store_root(store))
    records = [find_run(artifacts, run) for run in runs]
    made = comparison(artifacts, records)
    if out is not None:
        picture = overlaid(dict(zip(made["names"], [history(artifacts, each) for each in records], strict=True)))
        path = Path(out)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, picture if path.suffix == ".png" else page(made, picture).html().encode())
    return {**made, "out": out}


def comparison(store: Store, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The comparison of recorded runs, as JSON.

    Args:
        store: Where their artifacts are.
        records: Of the runs.
    """
    recipes = [record["recipe"] for record in records]
    fields = dict.fromkeys(name for recipe in recipes for name in recipe)
    scores = [_metrics(store, record) for record in records]
    seconds = [_seconds(store, record) for record in records]
    data = {"dataset": _each(records, lambda r: r["dataset"]), "records": _each(records, _digest_of("convert"))}
    return {
        "runs": [record["run"] for record in records],
        "names": [f"{at}: {record['run'][:8]}" for at, record in enumerate(records, 1)],
        "parameters": _differing({name: [recipe.get(name) for recipe in recipes] for name in fields}),
        "data": _differing(data),
        "metrics": {
            name: [score.get(name) for score in scores] for name in MEASURED if any(name in score for score in scores)
        },
        "intervals": {name: [score.get("intervals", {}).get(name) for score in scores] for name in MEASURED},
        "cost": {
            "seconds of the training": seconds,
            "examples/s": _each(records, lambda r: r["examples_per_second"]),
            "steps": _each(records, lambda r: r["steps"]),
            "parameters": _each(records, lambda r: r["parameters"]),
            "bytes of the weights": [_bytes(store, record) for record in records],
        },
        "decision": _each(records, lambda r: "promoted" if r["decision"]["promoted"] else r["decision"]["reason"]),
    }


def history(store: Store, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the metric log of a run; none if its weights are no longer in the store."""
    return read_metrics(store.path(artifact(record, "fit")) / HISTORY)


def _each(records: list[dict[str, Any]], value: Callable[[dict[str, Any]], Any]) -> list[Any]:
    return [value(record) for record in records]


def _digest_of(stage: str) -> Callable[[dict[str, Any]], str]:
    return lambda record: record["made"][stage]["digest"][:12]


def _differing(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


def _metrics(store: Store, record: dict[str, Any]) -> dict[str, Any]:
    """Those of the evaluation, or the few of the record if it is no longer in the store."""
    path = store.path(artifact(record, "evaluate")) / METRICS
    return read_json(path) if path.exists() else record["metrics"]


def _seconds(store: Store, record: dict[str, Any]) -> float | None:
    """What the training took when it was done, however often it came from the cache since; resumed ones count less."""
    made = artifact(record, "fit")
    known = store.find(made.kind, made.dataset, made.key)
    return None if known is None else store.manifest(known)["provenance"].get("seconds")


def _bytes(store: Store, record: dict[str, Any]) -> int | None:
    made = artifact(record, "fit")
    known = store.find(made.kind, made.dataset, made.key)
    return None if known is None else store.manifest(known)["files"]["weights.safetensors"]["bytes"]


def table_rows(made: dict[str, Any]) -> list[list[str]]:
    """The rows of the table: what, then a cell a run."""
    rows = [[name, *(_cell(value) for value in values)] for name, values in (made["parameters"] | made["data"]).items()]
    for name, values in made["metrics"].items():
        ends = made["intervals"][name]
        cells = [
            _cell(value) + ("" if end is None else f" ({shown(end)})") for value, end in zip(values, ends, strict=True)
        ]
        rows.append([name, *cells])
    rows += [[name, *(_cell(value) for value in values)] for name, values in made["cost"].items()]
    return [*rows, ["decision", *made["decision"]]]


def page(made: dict[str, Any], picture: bytes) -> Document:
    """Table and curves as a page.

    Args:
        made: Of `comparison`.
        picture: The curves, as PNG.
    """
    document = Document("Runs beside each other")
    document.table(["", *made["names"]], table_rows(made)[:-1])
    document.points([*zip(made["names"], made["decision"], strict=True)])  # sentences, which would stretch a column
    document.text(
        "In brackets: bootstrap intervals of 95 %, of each run alone. On the same test examples, runs can differ for"
        " certain although these overlap: the gate's paired test tells."
    )
    document.picture("Curves", picture)
    return document


def _cell(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else shown(value)


def show(made: dict[str, Any], console: Console) -> None:
    """Prints the table."""
    table = Table("", *made["names"], title="runs beside each other", title_justify="left")
    for row in table_rows(made):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    if made["out"]:
        console.print(f"written: {made['out']}", markup=False, soft_wrap=True)
