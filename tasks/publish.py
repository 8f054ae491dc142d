"""What Prefect's UI shows of a run: a table of metrics, the loss curve, the confusion matrix, the page of the run."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from tasks.durable import read_json
from tasks.evaluate import CONFUSION, LOSS_CURVE, METRICS
from tasks.stage import Run
from tasks.summary import artifact_of, rows


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
    create_markdown_artifact(key=f"{name}-run", markdown=page(summary, folder))


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
        f"{image(folder / LOSS_CURVE)}\n\n{image(folder / CONFUSION)}\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def image(path: Path) -> str:
    """A picture inside Markdown, without a server that would have to serve it."""
    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})"
