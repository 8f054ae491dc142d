"""The records of finished runs: what each was asked, did and made, so that it can be looked at and compared later.

<store>/runs/<dataset>/<run id>.json    no path of the machine is in it, so a store can be moved
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from datasets.errors import ArtifactDamaged, ParameterError, UnknownNameError
from tasks.artifact import Artifact, Store
from tasks.canonical import canonical, plain
from tasks.durable import read_json, write_json
from tasks.registry import Registry
from tasks.stage import Run

FORMAT = 1
FOLDER = "runs"
LEAST_DIGITS = 4
"""Of an id or a key that is given by its first digits."""


def write_run(run: Run, summary: dict[str, Any], shown_by: str | None = None) -> dict[str, Any]:
    """Writes the record of a finished run and gives it.

    Args:
        run: All of its stages done.
        summary: Of `summarise`.
        shown_by: Id of the run whose page in Prefect's UI shows what this one has; its own if None.
    """
    record = {
        **{name: value for name, value in summary.items() if name != "artifacts"},
        "format": FORMAT,
        "finished": time.time(),
        "shown_by": shown_by or summary["run"],
        "recipe": plain(canonical(run.request.dataset.recipe, set()))["Recipe"],
        "made": made_by(run),
    }
    folder = run.store.root / FOLDER / run.request.name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{summary['run']}.json", record)
    return record


def made_by(run: Run) -> dict[str, dict[str, str]]:
    """Handles of what each stage gave, as JSON."""
    return {outcome.name: outcome.artifact.to_json() for outcome in run.outcomes}


def runs_of(store: Store, dataset: str = "*") -> list[dict[str, Any]]:
    """The records of a dataset's runs, or of all datasets', the newest first.

    Raises:
        ArtifactDamaged: One can't be read.
    """
    records = [_read(path) for path in (store.root / FOLDER).glob(f"{dataset}/*.json")]
    return sorted(records, key=lambda record: record["finished"], reverse=True)


def last_run(store: Store, dataset: str) -> dict[str, Any] | None:
    """The record of a dataset's runs that was written last; None if there is none that can be read."""
    try:
        with os.scandir(store.root / FOLDER / dataset) as entries:  # of all runs that there ever were
            records = [entry for entry in entries if entry.name.endswith(".json")]
            return _read(Path(max(records, key=lambda entry: entry.stat().st_mtime_ns).path))
    except (ValueError, OSError, ArtifactDamaged):
        return None  # whoever asks for it only wants to save time


def last_made(store: Store, dataset: str) -> list[Artifact]:
    """What the last run of a dataset used, in the order of its stages; nothing if there was none."""
    record = last_run(store, dataset)
    return [artifact(record, stage["name"]) for stage in record["stages"]] if record is not None else []


def find_run(store: Store, name: str) -> dict[str, Any]:
    """The newest run that a name means.

    Args:
        store: Where the records are.
        name: A dataset (its last run); the id of a flow run or the key of the weights, or the first digits of either;
            "mnist/v3" or "mnist/champion" for the run that made a version; or a path that ends so, such as
            store/weights/mnist/<key>.

    Raises:
        UnknownNameError: No run is meant.
        ParameterError: Several are, of different weights.
    """
    dataset, _, rest = "/".join(Path(name).parts[-2:]).rpartition("/")
    if not dataset and (own := runs_of(store, rest)):
        return own[0]
    records = runs_of(store, dataset or "*")
    found = [record for record in records if record["run"] == rest]
    found = found or [record for record in records if _means(record, rest)]
    if not found and dataset and records:
        weights = store.facts(Registry(store, dataset).find(rest))["weights"]
        found = [record for record in records if record["made"]["fit"]["digest"] == weights]
    if not found:
        known = [record["run"] for record in records] + sorted({record["dataset"] for record in runs_of(store)})
        raise UnknownNameError.among("run", name, known)
    if len({record["made"]["fit"]["key"] for record in found}) > 1:
        raise ParameterError(
            "several runs begin so", parameter="run", got=name, expected=", ".join(r["run"] for r in found[:8]),
            cure="more digits",
        )  # fmt: skip
    return found[0]


def artifact(record: dict[str, Any], stage: str) -> Artifact:
    """What a stage of a recorded run made; it may be gone meanwhile."""
    return Artifact(**record["made"][stage])


def _means(record: dict[str, Any], digits: str) -> bool:
    names = (record["run"], record["made"]["fit"]["key"])
    return len(digits) >= LEAST_DIGITS and any(name.startswith(digits) for name in names)


def _read(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ArtifactDamaged("the record of a run can't be read", file=path, expected=f"format {FORMAT}",
                              cure="remove the file: nothing but the run's page needs it")  # fmt: skip
    return record
