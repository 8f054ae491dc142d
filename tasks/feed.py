"""Stage `feed`: decodes splits into memory-mapped columns, tries the input pipeline, picks its settings for the machine.

What it finds makes a run faster or slower but never different: the order of examples is a pure function of the records'
digest, the seed, the epoch and the step. So its artifact is advice, and `fit` doesn't count it in its key.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets.errors import StoreError
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_json
from tasks.progress import bar
from tasks.request import Request
from tasks.stage import Job, Run, Stage
from tasks.validate import open_split

PLAN = "plan.json"
SECONDS_A_SETTING = 0.4
MOST_STEPS = 200


@dataclass(frozen=True)
class Setting:
    """How Grain reads ahead.

    Attributes:
        threads: Read threads; 0 reads in the training loop's own thread.
        prefetch: Batches that are read ahead.
        workers: Worker processes.
    """

    threads: int = 0
    prefetch: int = 0
    workers: int = 0


CANDIDATES = (Setting(), Setting(threads=1, prefetch=4), Setting(threads=2, prefetch=8))


def plan_input(job: Job, records: Artifact, report: Artifact) -> Artifact:
    """A plan: the fastest setting on this machine, with what was measured.

    Raises:
        StoreError: The report vouches for other records than these.
        PipelineError: The train split is smaller than a batch.
        ContractError, SchemaError: A batch doesn't fit the features.
    """
    check_vouched(job.store, records, report)
    request = job.request
    for split in request.dataset.splits:
        columns(job.store, request, records, split)
    pipeline = open_pipeline(job.store, request, records)

    def fill(draft: Draft) -> None:
        measured = []
        with bar(job.stage, len(CANDIDATES), "settings") as progress:
            for setting in CANDIDATES:
                rate = measure(pipeline, request, setting)
                measured.append({**asdict(setting), "examples_per_second": rate})
                progress.advance(1, f"{rate:,.0f} examples/s")
        best = max(measured, key=lambda row: row["examples_per_second"])
        chosen = {name: best[name] for name in ("threads", "prefetch", "workers")}
        write_json(draft.folder / PLAN, {"chosen": chosen, "measured": measured, "tier": "memory-mapped columns"})
        draft.facts = {"records": records.digest}
        job.notes.update(chosen=chosen, measured=measured)

    return job.commit("plan", fill)


def measure(pipeline: Any, request: Request, setting: Setting) -> float:  # noqa: ANN401 - Grain loads late
    """Examples a second of a setting, each batch checked as in training."""
    from tasks.contracts import check_batch

    batch_size = request.dataset.recipe.batch_size
    stop = pipeline.order.total_steps(request.dataset.recipe.epochs)
    done, started = 0, time.perf_counter()
    with pipeline.iterate(0, min(stop, MOST_STEPS), **asdict(setting)) as batches:
        for batch in batches:
            check_batch(batch, request.dataset.features, batch_size, step=done)
            done += 1
            if time.perf_counter() - started > SECONDS_A_SETTING:
                break
    return done * batch_size / (time.perf_counter() - started)


def check_vouched(store: Store, records: Artifact, report: Artifact) -> None:
    """Refuses records that `validate` didn't see.

    Raises:
        StoreError: The report is about other records.
    """
    vouched = store.facts(report)["records"]
    if vouched != records.digest:
        raise StoreError(
            "these records were not validated", got=records.digest, expected=vouched, cure="run the whole flow"
        )


def columns(store: Store, request: Request, records: Artifact, split: str) -> Any:  # noqa: ANN401
    """Memory-mapped columns of a split, [rows, *shape] a feature; decoded from the shards when they aren't there.

    Raises:
        ArtifactDamaged: A shard isn't what it was when it was written.
    """
    from tasks.columns import MappedColumns, build_columns

    folder = store.root / "columns" / request.name / records.digest[:32] / split
    shards = open_split(store.path(records), store.facts(records), split, request.dataset.features)
    build_columns(shards, folder)
    return MappedColumns(folder)


def open_pipeline(store: Store, request: Request, records: Artifact) -> Any:  # noqa: ANN401
    """The train split's pipeline: global order, augmentation, provenance of its state."""
    from tasks.order import Order
    from tasks.pipeline import Pipeline

    recipe = request.dataset.recipe
    source = columns(store, request, records, "train")
    return Pipeline(
        source, Order(len(source), recipe.batch_size, recipe.seed), inputs=request.dataset.inputs,
        augment=recipe.augment, digest=records.digest, split="train",
    )  # fmt: skip


def chosen_setting(store: Store, plan: Artifact) -> Setting:
    """The setting that a plan chose."""
    return Setting(**read_json(store.path(plan) / PLAN)["chosen"])


def machine() -> dict[str, Any]:
    """What a measurement holds for: another machine measures anew."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "")
    return {"cores": os.cpu_count(), "architecture": platform.machine(), "processor": model}


def _reads(run: Run) -> dict[str, Any]:
    recipe = run.request.dataset.recipe
    return {
        "machine": machine(),
        "batch_size": recipe.batch_size,
        "augment": recipe.augment,
        "features": run.request.dataset.features,
    }


feed = Stage("feed", plan_input, _reads, libraries=("grain", "numpy"), advisory=frozenset({"report"}))
