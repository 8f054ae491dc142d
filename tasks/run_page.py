"""The page of a run: from the data to the champion, in one HTML file that loads nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from tasks.artifact import Store
from tasks.curves import gradients, speed
from tasks.decision import shown, write_decision
from tasks.document import Document
from tasks.durable import read_json, write_bytes
from tasks.evaluate import LOSS_CURVE, METRICS, MISTAKES, MISTAKES_PICTURE, said_against_truth
from tasks.event_log import TIMES
from tasks.feed import PLAN, PLOT
from tasks.fitted import read_fitted, unit_of
from tasks.headline import headline
from tasks.lineage_graph import drawn, lineage_graph
from tasks.metric_log import read_metrics
from tasks.promote import DECISION, MODEL
from tasks.report import write_report
from tasks.request import store_root
from tasks.run_record import artifact, find_run
from tasks.summary import rows, stage_table
from tasks.validate import REPORT, SAMPLES

FOLDER = "reports"
WORST = 8  # mistakes that are shown where there is no picture of them
COST = {"seconds": "seconds to compile", "flops": "FLOPs a step"}
HISTORY, MODEL_TABLE = "metrics.jsonl", "model.txt"  # of the weights


def report_run(run: str, *, out: str | None = None, store: str | None = None) -> dict[str, Any]:
    """Writes the page of a run; gives where it is, as JSON.

    Args:
        run: See `find_run`.
        out: The HTML file; a file below `reports/` in the store if None.
        store: Folder of the artifacts; see `store_root`.

    Raises:
        UsageError: No run is meant, or several are.
        ArtifactDamaged: What the run made was damaged since.
    """
    artifacts = Store(store_root(store))
    record = find_run(artifacts, run)
    path = Path(out) if out else artifacts.root / FOLDER / record["dataset"] / f"{record['run']}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = run_page(artifacts, record).html(contents=True).encode()
    write_bytes(path, content)
    return {"run": record["run"], "dataset": record["dataset"], "page": str(path), "bytes": len(content)}


def run_page(store: Store, record: dict[str, Any]) -> Document:
    """The page of a recorded run; what is no longer in the store is named as such.

    Args:
        store: Where the artifacts are.
        record: Of the run.
    """
    page = Document(f"train/{record['dataset']}: {headline(record['metrics'])}")
    finished = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record["finished"]))
    page.text(f"{record['about']}. Run {record['run']}, finished {finished}.")
    made = {name: artifact(record, name) for name in record["made"]}
    paths = {name: f"{one.kind}/{one.dataset}/{one.key}" for name, one in made.items()}  # below the store
    page.table(["", ""], rows({**record, "artifacts": paths}))
    page.heading("From raw files to the champion")
    page.drawing("The lineage of this run", drawn(*lineage_graph(store, record)))
    page.text("An arrow says what was made from what. A dashed one vouches or advises, and decides no byte.")
    with page.folded("What each stage did, and why it ran"):
        table = stage_table(record)
        page.table([*table[0]], [[str(value) for value in row.values()] for row in table])
    with page.folded("Recipe"):
        page.table(["", ""], [[name, str(value)] for name, value in record["recipe"].items()])
    _data(page, store, record)
    _training(page, store, record)
    _evaluation(page, store, record)
    _decision(page, store, record)
    return page


def _folder(page: Document, store: Store, record: dict[str, Any], stage: str) -> Path | None:
    """Where a stage's files are, verified; None, and a word on the page, when they are gone."""
    made = artifact(record, stage)
    if not store.path(made).exists():
        page.text(f"The {made.kind} {made.digest[:12]} is no longer in the store.")
        return None
    store.verify(made)
    return store.path(made)


def _data(page: Document, store: Store, record: dict[str, Any]) -> None:
    page.heading("Data")
    folder = _folder(page, store, record, "validate")
    if folder is None:
        return
    if (folder / SAMPLES).is_file():
        page.picture("Examples to train on", (folder / SAMPLES).read_bytes())
    write_report(page, read_json(folder / REPORT), level=3)


def _training(page: Document, store: Store, record: dict[str, Any]) -> None:
    page.heading("Curves")
    weights = _folder(page, store, record, "fit")
    if (curve := store.path(artifact(record, "evaluate")) / LOSS_CURVE).is_file():
        page.picture("Loss", curve.read_bytes())
    if weights is not None and unit_of(read_fitted(weights), read_json(weights / MODEL)["label"]):
        page.text("Loss and error of the curves are in standard deviations of the train split's labels.")
    if weights is not None:
        page.picture("Gradients and learning rate", gradients(read_metrics(weights / HISTORY)))
    page.heading("Speed and input")
    speeds = store.root / "logs" / record["dataset"] / record["made"]["fit"]["key"] / TIMES
    times = pq.read_table(speeds).to_pylist() if speeds.is_file() else []
    if times:
        page.picture("Examples a second and waiting for input", speed(times))
    else:
        page.text("The log of speeds is no longer in the store.")
    notes = {} if weights is None else store.manifest(artifact(record, "fit"))["provenance"].get("notes", {})
    if waits := notes.get("input_waits"):
        page.table(["wait for a batch", ""], [[name.replace("_", " "), shown(value)] for name, value in waits.items()])
    plan = _folder(page, store, record, "feed")
    if plan is not None:
        page.text(f"Settings of the feed: {read_json(plan / PLAN)['chosen']['why']}.")
        page.picture("Settings of the feed that were tried", (plan / PLOT).read_bytes())
    page.heading("Programs and traces")
    page.table(["program", "traces", "program came from"], [
        [name, f"{used} of {budget}", record["compiled"][name]] for name, (used, budget) in record["traces"].items()
    ])  # fmt: skip
    if traces := notes.get("traces"):
        page.table(["of the training", *COST.values()], [
            [name, *(shown(report.get(each, "")) for each in COST)] for name, report in traces.items()
        ])  # fmt: skip
    if weights is not None and (weights / MODEL_TABLE).is_file():
        with page.folded("Layers of the model"):
            page.verbatim((weights / MODEL_TABLE).read_text(encoding="utf-8"))


def _evaluation(page: Document, store: Store, record: dict[str, Any]) -> None:
    from tasks.model_card import write_metrics

    folder = _folder(page, store, record, "evaluate")
    if folder is None:
        return
    metrics = read_json(folder / METRICS)
    write_metrics(page, metrics, len(metrics.get("classes", ())))
    title, picture = said_against_truth(folder)
    page.heading(title)
    page.picture(f"{title}, test split", picture.read_bytes())
    page.heading("Mistakes")
    wrong = read_json(folder / MISTAKES)
    if not wrong:
        page.text("The model makes no mistake on the test split.")
        return
    if (folder / MISTAKES_PICTURE).is_file():
        page.picture("The worst mistakes", (folder / MISTAKES_PICTURE).read_bytes())
    rows = [[shown(value) for value in row.values()] for row in wrong]
    if not (folder / MISTAKES_PICTURE).is_file():
        page.table([*wrong[0]], rows[:WORST])
    with page.folded("The raw row of each"):
        page.table([*wrong[0]], rows)


def _decision(page: Document, store: Store, record: dict[str, Any]) -> None:
    page.heading("Decision of the gate")
    if "promote" not in record["made"]:
        page.text(f"None: {record['decision']['reason']}.")
    elif (folder := _folder(page, store, record, "promote")) is not None:
        write_decision(page, read_json(folder / DECISION))


def show(made: dict[str, Any], console: Console) -> None:
    """Prints where the page is."""
    console.print(f"{made['page']}, {made['bytes'] / 1e3:,.0f} kB", markup=False, soft_wrap=True)
