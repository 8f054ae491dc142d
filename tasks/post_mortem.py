"""From a capsule alone to a report: builds the step, runs the bad batch again, finds its examples in the raw files."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import datasets
from datasets.errors import ArtifactDamaged, ParameterError
from datasets.recipe import Recipe
from datasets.schema import Dataset
from tasks.artifact import Artifact, Store
from tasks.capsule import Capsule, load_capsule
from tasks.convert import ORIGIN, origin_of
from tasks.durable import read_json
from tasks.fingerprint import Sources
from tasks.fitted import Fitted
from tasks.request import store_root

SHOWN = 10


def context(name: str, recipe: Recipe, total_steps: int, class_weights: np.ndarray | None, records: Artifact,
            components: dict[str, Any], fitted: Fitted | None = None) -> dict[str, Any]:  # fmt: skip
    """What a capsule must say so that the step can be built again from it, as JSON.

    Args:
        name: Of the dataset.
        recipe: As it was trained with. Augmentations are left out: the capsule holds the batch as they made it.
        total_steps: Of the training, for the schedule.
        class_weights: Of the loss.
        records: Whose rows the record ids are.
        components: Of the key of `fit`; the code is kept.
        fitted: Transforms whose results the batch holds.
    """
    values = {k: v for k, v in asdict(recipe).items() if k != "augment"}
    return {
        "dataset": name, "recipe": {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()},
        "total_steps": total_steps, "class_weights": None if class_weights is None else class_weights.tolist(),
        "records": records.to_json(), "code": components.get("code", {}),
        "transforms": None if fitted is None else fitted.to_json(),
    }  # fmt: skip


def examine(capsule: str, store: str | None = None) -> dict[str, Any]:
    """Runs the bad batch of a capsule again and says what made it bad, as JSON.

    Args:
        capsule: Its folder.
        store: Root of the store; the one that the capsule lies in if None.

    Raises:
        ArtifactDamaged: The capsule isn't whole.
        ParameterError: It wasn't made by the flow, so it doesn't say how to build the step.
        CheckpointMismatch: Today's code builds another model or optimizer.
    """
    from tasks.compiled import FOLDER, use_compilation_cache
    from tasks.objective import Objective
    from tasks.replay import replay

    path = Path(capsule).resolve()
    found = load_capsule(path)
    root = store_root(store) if store is not None else path.parents[2]
    if (root / FOLDER).is_dir():
        use_compilation_cache(root)
    dataset, weights = rebuilt(found), found.context["class_weights"]
    objective = Objective(dataset, None if weights is None else np.asarray(weights, np.float32))
    result = replay(found, objective.train_step(found.context["total_steps"]))
    verdict = found.verdict
    return {
        "capsule": str(path), "dataset": found.context["dataset"], "step": verdict.step, "kind": verdict.kind,
        "loss": repr(verdict.loss), "reproduced": result.reproduced,
        "line": result.line, "nan_line": result.nan_line, "leaves": list(verdict.leaves),
        "examples": [origin(Store(root), found, record) for record in result.ids], "batch": len(found.ids),
        "versions": changes(found.versions, versions_here(found)),
        "code": code_changes(found),
    }  # fmt: skip


def rebuilt(capsule: Capsule) -> Dataset:
    """The dataset with the recipe of the run that failed.

    Raises:
        ParameterError: The capsule's context isn't one that `context` made.
    """
    try:
        known = datasets.load(capsule.context["dataset"])
        values = capsule.context["recipe"]
    except KeyError as error:
        raise ParameterError(
            "this capsule doesn't say how to build its step", parameter="capsule", got=str(capsule.path),
            cure="load_capsule and replay of tasks/ take a step that you build yourself",
        ) from error  # fmt: skip
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    if (fitted := capsule.context.get("transforms")) is not None:
        known = Fitted.from_json(fitted).dataset(known)
    return replace(known, recipe=Recipe(**values))


def origin(store: Store, capsule: Capsule, record: int) -> dict[str, Any]:
    """Where an example comes from: its id in the train split, and raw file and row if the records are there."""
    try:
        artifact = Artifact(**capsule.context["records"])
        file, row = origin_of(read_json(store.path(artifact) / ORIGIN)["train"], record)
    except (ArtifactDamaged, OSError, KeyError, IndexError):
        return {"record": record, "file": None, "row": None}
    return {"record": record, "file": file, "row": row}


def code_changes(capsule: Capsule) -> list[str]:
    """Definitions of this project that the run used and that are others today."""
    here = Sources().fingerprint(["tasks.fit:fit_model", f"tasks.models.{capsule.context['recipe']['model']}:build"])
    return changes({name: old for name, old in capsule.context["code"].items() if name in here}, here)


def versions_here(capsule: Capsule) -> dict[str, str]:
    """Versions of this process, of all that the capsule names."""
    from tasks.capsule import versions

    here = versions()
    return {name: here.get(name, "absent") for name in capsule.versions}


def changes(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """One line for each name whose value isn't the old one; names that are new don't count."""
    return [f"{name}: {value} -> {new.get(name, 'absent')}" for name, value in old.items() if new.get(name) != value]


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the report for people."""

    def say(what: str, value: object) -> None:
        console.print(f"[bold]{what:<11}[/bold]", str(value), highlight=False, soft_wrap=True)

    say("capsule", report["capsule"])
    say(
        "verdict", f"step {report['step']} of {report['dataset']}: the {report['kind']} isn't finite ({report['loss']})"
    )
    say("reproduced", "yes, to the last bit" if report["reproduced"] else "NO: the batch gives another result here")
    for what in ("versions", "code"):
        if report[what]:
            say("changed", f"{what} since then: {'; '.join(report[what][:SHOWN])}")
    say("first line", report["line"] or "none: no operation makes infinity or NaN when the step runs line by line")
    if report["nan_line"] != report["line"]:
        say("first NaN", report["nan_line"] or "none")
    say("gradients", ", ".join(report["leaves"]) or "all finite")
    examples = report["examples"]
    if len(examples) == report["batch"]:
        say("examples", "each of the batch fails alone: it is the weights or the code, not an example")
    elif not examples:
        say("examples", "none fails alone: it takes several of them together")
    else:
        for example in examples[:SHOWN]:
            where = f"{example['file']}, row {example['row']}" if example["file"] else "its records are gone"
            say("example", f"record {example['record']} of the train split: {where}")
        if len(examples) > SHOWN:
            say("", f"... {len(examples)} of {report['batch']} in all")
