"""What a run did, as JSON for machines and as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.artifact import Artifact
from tasks.headline import SHOWN, figure_rows
from tasks.other_mesh import ONE_DEVICE, meshes_said
from tasks.registry import Registry
from tasks.stage import Outcome, Run
from tasks.warm_start import said

UNDECIDED = {"promoted": False, "reason": "not held against the champion"}


def summarise(run: Run, run_id: str) -> dict[str, Any]:
    """The summary of a finished run, as JSON.

    Args:
        run: All of its stages done.
        run_id: Prefect's id of the flow run.
    """
    by_name = {outcome.name: outcome for outcome in run.outcomes}
    fit, evaluation = by_name["fit"].notes, run.store.facts(by_name["evaluate"].artifact)
    decision = run.store.facts(by_name["promote"].artifact) if "promote" in by_name else UNDECIDED
    champion = Registry(run.store, run.request.name).current()  # that it is whole was seen by the promotion
    traces = {**fit["traces"], "predict": by_name["evaluate"].notes["traces"]}
    return {
        "run": run_id,
        "dataset": run.request.name,
        "about": run.request.dataset.about,
        "stages": [_stage_json(outcome) for outcome in run.outcomes],
        "metrics": {name: evaluation[name] for name in SHOWN if name in evaluation},
        "champion": None if champion is None else champion.version,
        "decision": told(decision, None if champion is None else champion.version),
        "steps": run.store.facts(by_name["fit"].artifact)["steps"],
        "parameters": run.store.facts(by_name["fit"].artifact)["parameters"],
        "examples_per_second": fit["examples_per_second"],
        "traces": {name: [report["used"], report["budget"]] for name, report in traces.items()},
        "compiled": {name: "from cache" if report["from_cache"] else "compiled" for name, report in traces.items()},
        "skipped_batches": fit["skipped_batches"],
        "input_wait": fit["input_wait"],
        "resumed_from": fit["resumed_from"],
        "checkpoints": fit["checkpoints"],
        "warm_start": fit["warm_start"],
        "meshes": fit.get("meshes", ONE_DEVICE),
        "artifacts": {outcome.name: str(run.store.path(outcome.artifact)) for outcome in run.outcomes},
    }


def told(decision: dict[str, Any], champion: str | None) -> dict[str, Any]:
    """What a decision means today: whoever it made champion may have been rolled back by hand since, and stays so.

    Args:
        decision: Of stage `promote`, which may be an old one from the cache.
        champion: Version of today's.
    """
    version = decision.get("version")
    if decision["promoted"] and version is not None and version != champion:
        reason = f"{version} was promoted by this decision, and {champion} was made the champion by hand since"
        return {"promoted": False, "reason": reason}
    return {name: decision[name] for name in ("promoted", "reason")}


def _stage_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name, "key": outcome.key, "state": outcome.state, "seconds": round(outcome.seconds, 3),
        "digest": outcome.artifact.digest, "because": list(outcome.because),
    }  # fmt: skip


def show(summary: dict[str, Any], console: Console) -> None:
    """Prints the table that ends a run."""
    table = Table(title=f"train/{summary['dataset']}", title_justify="left", show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(summary):
        table.add_row(name, Text(value))  # as it is: brackets in a text or a path are no markup
    console.print(table)


def rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of the table: what, and how much."""
    metrics, speed, wait = summary["metrics"], summary["examples_per_second"], summary["input_wait"]
    states = {stage["name"]: stage["state"] for stage in summary["stages"]}
    cached = [name for name, state in states.items() if state == "cached"]
    return [
        ("data", summary["about"]),
        *figure_rows(metrics),
        ("steps", f"{summary['steps']:,}"),
        ("parameters", f"{summary['parameters']:,}"),
        ("examples/s", "-" if speed is None else f"{speed:,.0f}"),
        ("input wait", "-" if wait is None else f"{wait:.1%} of the training time"),
        ("traces", ", ".join(f"{name} {used} of {budget}" for name, (used, budget) in summary["traces"].items())),
        ("programs", ", ".join(f"{name} {how}" for name, how in summary["compiled"].items())),
        ("skipped batches", str(summary["skipped_batches"])),
        ("checkpoints", _saving(summary["checkpoints"])),
        *([("resumed from", f"step {summary['resumed_from']:,}")] if summary["resumed_from"] else []),
        *([("warm start", said(summary["warm_start"]))] if summary["warm_start"] else []),
        *([("devices", meshes_said(summary["meshes"]))] if summary["meshes"] != ONE_DEVICE else []),
        ("stages", ", ".join(f"{name} {state}" for name, state in states.items())),
        ("cached", f"{len(cached)} of {len(states)}"),
        ("champion", f"{summary['champion']} ({summary['decision']['reason']})"),
        ("weights", summary["artifacts"]["fit"]),
        ("evaluation", summary["artifacts"]["evaluate"]),
    ]


def stage_table(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a stage."""
    return [
        {
            "stage": row["name"], "state": row["state"], "seconds": round(row["seconds"], 1),
            "why it ran": "; ".join(row["because"]), "key": row["key"][:12], "digest": row["digest"][:12],
        }
        for row in summary["stages"]
    ]  # fmt: skip


def _saving(cost: dict[str, Any]) -> str:
    if not cost["saves"]:
        return "none saved: all steps were done"
    saves = cost["saves"]
    return (
        f"{saves} saved of {cost['bytes'] / 1e6:.1f} MB, each written in {cost['written_s'] / saves:.2f} s and"
        f" blocking the training for {cost['blocked_s'] / saves:.3f} s ({cost['share']:.1%} of its time)"
    )


def artifact_of(run: Run, stage: str) -> Artifact:
    """The artifact that a stage of a run gave."""
    return next(outcome.artifact for outcome in run.outcomes if outcome.name == stage)
