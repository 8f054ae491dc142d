"""What Prefect's UI shows of a run: metrics, loss curve, confusion matrix, settings of the feed, the run's page."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from tasks.durable import read_json
from tasks.evaluate import CONFUSION, LOSS_CURVE, METRICS
from tasks.feed import PLAN, PLOT
from tasks.stage import Run
from tasks.summary import artifact_of, rows
from tasks.validate import PAGE

MODEL_TABLE = "model.txt"


def publish(run: Run, summary: dict[str, Any]) -> None:
    """Creates the artifacts of the current flow run, under keys of the dataset so that Prefect keeps their history."""
    folder = run.store.path(artifact_of(run, "evaluate"))
    metrics = read_json(folder / METRICS)
    name = key_part(run.request.name)
    create_table_artifact(
        key=f"{name}-metrics", table=json.loads(json.dumps(table(metrics))), description=summary["about"]
    )
    create_markdown_artifact(key=f"{name}-loss-curve", markdown=f"# Loss\n\n{image(folder / LOSS_CURVE)}")
    create_markdown_artifact(
        key=f"{name}-confusion-matrix", markdown=f"# Confusion matrix, test split\n\n{image(folder / CONFUSION)}"
    )
    plan = run.store.path(artifact_of(run, "feed"))
    settings = read_json(plan / PLAN)
    create_table_artifact(
        key=f"{name}-feed", table=feed_table(settings),
        description=f"Settings of the input pipeline. Tier: {settings['tier']}. Chosen: {settings['chosen']['why']}",
    )  # fmt: skip
    create_markdown_artifact(
        key=f"{name}-feed-plot", markdown=f"# Input settings\n\n{settings['chosen']['why']}\n\n{image(plan / PLOT)}"
    )
    report = run.store.path(artifact_of(run, "validate"))
    create_markdown_artifact(key=f"{name}-data", markdown=(report / PAGE).read_text(encoding="utf-8"))
    create_markdown_artifact(key=f"{name}-run", markdown=page(summary, folder))


def feed_table(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each setting of the feed, tried or not, and which one was chosen."""
    chosen = {name: plan["chosen"][name] for name in ("threads", "prefetch", "workers", "resident")}

    def shown(value: float | None, digits: int) -> float | str:
        return "" if value is None else round(value, digits)

    return [
        {
            **{name: row[name] for name in chosen},
            "examples/s": shown(row["examples_per_second"], 0),
            "start, s": shown(row["start_seconds"], 3),
            "input of the whole training, s": shown(row["training_seconds"], 2),
            "remark": "chosen" if {name: row[name] for name in chosen} == chosen else row["why"],
        }
        for row in plan["measured"]
    ]


def key_part(name: str) -> str:
    """A name as Prefect allows it in an artifact's key: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "dataset"


def table(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for the whole test split and one a class."""
    whole = {
        "class": "all", "examples": metrics["examples"], "accuracy or recall": round(metrics["accuracy"], 4),
        "precision": "", "F1": "",
    }  # fmt: skip
    classes = [
        {
            "class": name, "examples": row["support"], "accuracy or recall": round(row["recall"], 4),
            "precision": round(row["precision"], 4), "F1": round(row["f1"], 4),
        }
        for name, row in metrics["classes"].items()
    ]  # fmt: skip
    return [whole, *classes]


def page(summary: dict[str, Any], folder: Path) -> str:
    """The page of a run, in Markdown with its pictures inside."""
    facts = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows(summary))
    stages = "\n".join(
        f"| {row['name']} | {row['state']} | {row['seconds']:.1f} | `{row['key'][:12]}` | `{row['digest'][:12]}` |"
        for row in summary["stages"]
    )
    return (
        f"# train/{summary['dataset']}\n\n{summary['about']}.\n\n| | |\n|---|---|\n{facts}\n\n"
        f"| stage | state | seconds | key | digest |\n|---|---|---|---|---|\n{stages}\n\n"
        f"{image(folder / LOSS_CURVE)}\n\n{image(folder / CONFUSION)}\n{_model(Path(summary['artifacts']['fit']))}"
    )


def _model(weights: Path) -> str:
    """The model's layers; none for weights of before they were kept."""
    path = weights / MODEL_TABLE
    return f"\n## Model\n\n```text\n{path.read_text()}```\n" if path.is_file() else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def image(path: Path) -> str:
    """A picture inside Markdown, without a server that would have to serve it."""
    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})"
