"""What Prefect's UI shows of a run: its stages and why they ran, data, feed, metrics, plots, the run's page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.exceptions import ObjectNotFound

from tasks.decision import shown as figure
from tasks.durable import read_json
from tasks.evaluate import LOSS_CURVE, METRICS, MISTAKES_PAGE, MISTAKES_PICTURE, said_against_truth
from tasks.feed import PLAN, PLOT
from tasks.notify import say_refused
from tasks.progress import LOG
from tasks.promote import PAGE as DECISION_PAGE
from tasks.run_record import last_run, made_by
from tasks.stage import Run
from tasks.summary import artifact_of, rows, stage_table
from tasks.validate import PAGE, SAMPLES

MODEL_TABLE = "model.txt"


def publish(run: Run, summary: dict[str, Any]) -> None:
    """Creates the artifacts of the current flow run, under keys of the dataset so that Prefect keeps their history."""
    name, run_id = key_part(run.request.name), UUID(summary["run"])
    with get_client(sync_client=True) as client:  # one connection for all
        for what, kind, data, about in shown(run, summary):
            client.create_artifact(
                ArtifactCreate(key=f"{name}-{what}", type=kind, data=data, description=about, flow_run_id=run_id)
            )
    if not summary["decision"]["promoted"] and summary["stages"][-1]["state"] != "cached":
        say_refused(summary["run"], summary["champion"], summary["decision"]["reason"])


def last_shown(run: Run) -> dict[str, Any] | None:
    """The record of the dataset's last run, if this server knows the run whose page shows what that one had.

    Asked for when a run begins: at its end the server is busy to write down what it did.
    """
    record = last_run(run.store, run.request.name)
    if record is None or record.get("shown_by") is None:
        return None
    with get_client(sync_client=True) as client:
        try:
            client.read_flow_run(UUID(record["shown_by"]))
        except (ObjectNotFound, ValueError):
            return None
        except HTTPError as error:  # this run makes a page of its own then, and loses nothing but time
            LOG.debug("the page of before can't be asked for: %s", error)
            return None
    return record


def shown_before(run: Run, summary: dict[str, Any], before: dict[str, Any] | None) -> str | None:
    """Id of an earlier run whose page shows all that this one has; None if there is none.

    A page of pictures is the dearest that a run has to do whose stages are all cached.

    Args:
        run: All of its stages done.
        summary: Of `summarise`.
        before: Of `last_shown`.
    """
    now = {"made": made_by(run), "champion": summary["champion"], "decision": summary["decision"]}
    if before is None or {name: before.get(name) for name in now} != now:
        return None
    if any(stage["state"] != "cached" for stage in summary["stages"]):
        return None
    LOG.info("nothing changed since a run whose page shows all: %s", before["shown_by"])
    return before["shown_by"]


def shown(run: Run, summary: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    """What is shown: its key, "table" or "markdown", the content, and a description.

    The run's page, with its stages, always; what a stage made only if it ran, because Prefect still has it from the run
    in which it did, under the same key, and each costs a call. See `shown_before` for runs in which nothing changed.
    """
    folder = run.store.path(artifact_of(run, "evaluate"))
    yield "run", "markdown", page(summary, folder), None
    ran = {stage["name"] for stage in summary["stages"] if stage["state"] != "cached"}
    for stage, pages in (("validate", _data), ("feed", _feed), ("evaluate", _evaluation), ("promote", _decision)):
        if stage in ran:
            yield from pages(run.store.path(artifact_of(run, stage)), summary)
    if ran:
        yield "stages", "table", json.dumps(stage_table(summary)), "What each stage did, and why it ran"
    if "fit" in ran:
        yield "model", "markdown", model_page(summary), None


def _data(report: Path, summary: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    yield "data", "markdown", (report / PAGE).read_text(encoding="utf-8"), None
    if (report / SAMPLES).is_file():
        yield "samples", "markdown", f"# Examples to train on\n\n{image(report / SAMPLES)}", None


def _feed(plan: Path, summary: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    settings = read_json(plan / PLAN)
    why = settings["chosen"]["why"]
    about = f"Settings of the input pipeline. Tier: {settings['tier']}. Chosen: {why}"
    yield "feed", "table", json.dumps(feed_table(settings)), about
    yield "feed-plot", "markdown", f"# Input settings\n\n{why}\n\n{image(plan / PLOT)}", None


def _evaluation(folder: Path, summary: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    yield "metrics", "table", json.dumps(table(read_json(folder / METRICS))), summary["about"]
    yield "loss-curve", "markdown", f"# Loss\n\n{image(folder / LOSS_CURVE)}", None
    title, said = said_against_truth(folder)
    yield key_part(title), "markdown", f"# {title}, test split\n\n{image(said)}", None
    mistakes = folder / MISTAKES_PAGE
    if mistakes.is_file():
        yield "mistakes", "markdown", mistakes.read_text(encoding="utf-8"), None
    if (folder / MISTAKES_PICTURE).is_file():
        picture = image(folder / MISTAKES_PICTURE)
        yield "mistakes", "markdown", f"# The worst mistakes, test split\n\n{picture}", None


def _decision(decision: Path, summary: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    if (decision / DECISION_PAGE).is_file():
        yield "decision", "markdown", (decision / DECISION_PAGE).read_text(encoding="utf-8"), None


def publish_cleaning(report: dict[str, Any]) -> None:
    """Creates the artifact of the current run of `clean`: what went, and how many bytes."""
    from prefect.artifacts import create_table_artifact

    verb = "would go" if report["dry_run"] else "gone"
    removed = [{**row, "days": round(row["days"], 1)} for row in report["removed"]]
    about = f"{verb} from {report['store']}: {len(removed)}, {report['bytes']:,} bytes"
    create_table_artifact(key="store-clean", table=removed, description=about)


def publish_sweep(made: dict[str, Any], table: list[dict[str, str]]) -> None:
    """Creates the artifact of the current run of `sweep`: its table."""
    from prefect.artifacts import create_table_artifact

    key = f"{key_part(made['dataset'])}-sweep"
    create_table_artifact(key=key, table=table, description=made["note"])  # type: ignore[arg-type]


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
    """One row for the whole test split and one a class; of a number one row a metric."""
    if "classes" not in metrics:
        return [{"metric": name, "value": figure(metrics[name]), "interval": figure(ends)}
                for name, ends in metrics["intervals"].items()]  # fmt: skip
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
    stages = "\n".join(f"| {' | '.join(_cell(str(value)) for value in row.values())} |" for row in stage_table(summary))
    return (
        f"# train/{summary['dataset']}\n\n{summary['about']}.\n\n| | |\n|---|---|\n{facts}\n\n"
        f"| stage | state | seconds | why it ran | key | digest |\n|---|---|---|---|---|---|\n{stages}\n\n"
        f"{image(folder / LOSS_CURVE)}\n\n{image(said_against_truth(folder)[1])}\n\n{model_page(summary)}"
    )


def model_page(summary: dict[str, Any]) -> str:
    """What is known of the weights: whether they are the champion, where they are, and the model's layers."""
    weights, decision = Path(summary["artifacts"]["fit"]), summary["decision"]
    verdict = "promoted" if decision["promoted"] else "refused"
    layers = weights / MODEL_TABLE
    text = layers.read_text(encoding="utf-8") if layers.is_file() else ""  # none for weights of before it was kept
    return (
        f"## Model\n\n{verdict}: {decision['reason']}. Champion: {summary['champion'] or 'none'}."
        f" {summary['parameters']:,} parameters after {summary['steps']:,} steps,"
        f" in the store at `{'/'.join(weights.parts[-3:])}`.\n" + (f"\n```text\n{text}```\n" if text else "")
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def image(path: Path) -> str:
    """A picture inside Markdown, without a server that would have to serve it."""
    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})"
