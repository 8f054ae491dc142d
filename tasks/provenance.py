"""Which raw row a training saw where, and where it saw a raw row: computed from the seed, nothing is replayed."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from datasets.errors import ParameterError
from datasets.schema import check_int
from tasks.artifact import Artifact, Store
from tasks.dealing import ORIGIN, origin_of
from tasks.durable import read_json
from tasks.feed import train_order
from tasks.request import Request

SHOWN = 20


def trace(
    request: Request, records: Artifact, *, step: int | None = None, slot: int | None = None, file: str | None = None,
    row: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Either the examples of a step (or of one slot of it), or the steps that see a raw row, as JSON.

    Args:
        request: Whose recipe says batch size, seed and epochs.
        records: The shards, with their origin.
        step: Counted from 0, over all epochs.
        slot: Place in the batch, counted from 0; all of them if None.
        file: Raw file; may be left out if the dataset has rows of one file only.
        row: Of the raw file, counted from 0.

    Raises:
        ParameterError: Neither or both are asked for, or there is no such step, slot, file or row.
    """
    if (step is None) == (row is None) or (slot is not None and step is None) or (file is not None and row is None):
        raise ParameterError(
            "ask for a step or for a row", expected="--step N [--slot N], or --row N [--file NAME]",
            got=", ".join(f"{k}={v}" for k, v in {"step": step, "slot": slot, "file": file, "row": row}.items()
                          if v is not None) or "nothing",
        )  # fmt: skip
    store, recipe = Store(request.store), request.dataset.recipe
    order = train_order(store, request, records)
    origins = read_json(store.path(records) / ORIGIN)
    about = {
        "dataset": request.name, "batch_size": recipe.batch_size, "seed": recipe.seed, "epochs": recipe.epochs,
        "steps": order.total_steps(recipe.epochs),
    }  # fmt: skip
    found = (
        _of_step(order, origins, step, slot, about)
        if step is not None
        else _of_row(order, origins, file, row or 0, about)
    )
    return {**about, **found}


def _of_step(order: Any, origins: dict[str, Any], step: int, slot: int | None, about: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    for name, value, limit in (("step", step, about["steps"]), ("slot", slot, about["batch_size"])):
        if value is not None:
            check_int(name, value, 0)
            if value >= limit:
                raise ParameterError(
                    f"there is no such {name}", parameter=name, got=value, expected=f"0 ... {limit - 1}"
                )
    epoch, ids = order.ids(step)
    slots = range(len(ids)) if slot is None else [slot]
    examples = []
    for place in slots:
        example = int(ids[place])
        name, row = origin_of(origins["train"], example)
        examples.append({"slot": place, "example": example, "file": name, "row": row})
    return {"step": step, "epoch": epoch, "examples": examples}


def _of_row(
    order: Any, origins: dict[str, Any], file: str | None, row: int, about: dict[str, Any]  # noqa: ANN401
) -> dict[str, Any]:  # fmt: skip
    check_int("row", row, 0)
    files = sorted({run[0] for runs in origins.values() for run in runs})
    if file is None and len(files) == 1:
        file = files[0]
    if file is None or file not in files:
        raise ParameterError(
            "say which raw file" if file is None else "no example comes from this raw file", parameter="file", got=file,
            expected=", ".join(files[:SHOWN]) + (", ..." if len(files) > SHOWN else ""),
        )  # fmt: skip
    for split, runs in origins.items():
        example = _example_of(runs, file, row)
        if example is not None:
            seen = order.steps_of(example, about["epochs"]) if split == "train" else []
            steps = [{"step": step, "slot": slot, "epoch": order.epoch(step)} for step, slot in seen]
            return {"file": file, "row": row, "split": split, "example": example, "seen": steps}
    raise ParameterError(
        "no example comes from this row", parameter="row", got=row,
        expected=f"a row of {file} that a split holds; it may be outside of all splits, or set aside",
    )  # fmt: skip


def _example_of(runs: list[list[Any]], file: str, row: int) -> int | None:
    before = 0
    for name, first, count in runs:
        if name == file and first <= row < first + count:
            return before + row - first
        before += count
    return None


def show(found: dict[str, Any], console: Console) -> None:
    """Prints what was found, for people."""
    recipe = f"batch size {found['batch_size']}, seed {found['seed']}, {found['epochs']} epochs"
    if "examples" in found:
        console.print(f"{found['dataset']}, {recipe}: step {found['step']} is in epoch {found['epoch']}")
        for row in found["examples"]:
            console.print(f"  slot {row['slot']}: example {row['example']}, {row['file']} row {row['row']}")
        return
    console.print(
        f"{found['dataset']}: {found['file']} row {found['row']} is {found['split']} example {found['example']}"
    )
    if found["split"] != "train":
        console.print("  no training step sees it")
        return
    for row in found["seen"]:
        console.print(f"  epoch {row['epoch']}: step {row['step']}, slot {row['slot']}")
    missed = sorted(set(range(found["epochs"])) - {row["epoch"] for row in found["seen"]})
    if missed:
        console.print(f"  not in epochs {', '.join(map(str, missed))}: among the remainder that fills no batch")
