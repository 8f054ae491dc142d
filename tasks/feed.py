"""Stage `feed`: puts splits where they are read from, tries the input pipeline, picks its settings for the machine.

What it finds makes a run faster or slower but never different: the order of examples is a pure function of the records'
digest, the seed, the epoch and the step. So its artifact is advice, and `fit` doesn't count it in its key.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import CheckpointMismatch, StoreError
from datasets.schema import Feature
from datasets.splits import names_of
from tasks.artifact import Artifact, Draft, Store
from tasks.autotune import IN_PROCESS, RESIDENT, Setting, Trial, choose, tune, worker_settings
from tasks.durable import read_json, write_bytes, write_json
from tasks.fitted import Fitted, Transformed, read_fitted
from tasks.progress import bar
from tasks.request import Request
from tasks.stage import Job, Run, Stage
from tasks.validate import open_split

PLAN, PLOT = "plan.json", "plan.png"
BUDGET = 20.0  # seconds for all measurements; a plan of in-process settings takes about 2
MOST_STEPS = 1000  # of one measurement
ROWS_AT_ONCE = 4096


def plan_input(job: Job, records: Artifact, report: Artifact, transforms: Artifact | None = None) -> Artifact:
    """A plan: the setting to use on this machine, with what was measured, a plot, and why.

    Raises:
        StoreError: The report vouches for other records than these.
        PipelineError: The train split is smaller than a batch.
        ContractError, SchemaError: A batch doesn't fit the features.
    """
    check_vouched(job.store, records, report)
    request = job.request
    for split in names_of(request.dataset.splits):
        columns(job.store, request, records, split)
    recipe = request.dataset.recipe
    steps = open_pipeline(job.store, request, records).order.total_steps(recipe.epochs)

    def fill(draft: Draft) -> None:
        from tasks.plots import feed_settings

        settings = candidates(job.store, request, records)
        with bar(job.stage, len(settings), "settings") as progress:
            trials = tune(
                settings, *_parts(job.store, request, records), batch_size=recipe.batch_size, steps=steps,
                budget=BUDGET, done=lambda trial: progress.advance(1, _said(trial)),
            )  # fmt: skip
        chosen = choose(trials)
        plan = {
            "chosen": trials[chosen].to_json() | {"why": because(trials, chosen)},
            "measured": [trial.to_json() for trial in trials],
            "tier": tier(job.store, request, records), "batch_size": recipe.batch_size, "steps": steps,
        }  # fmt: skip
        write_json(draft.folder / PLAN, plan)
        write_bytes(
            draft.folder / PLOT, feed_settings([str(t.setting) for t in trials], [t.rate for t in trials], chosen)
        )
        draft.facts = {"records": records.digest}
        job.notes.update(plan)

    return job.commit("plan", fill)


def candidates(store: Store, request: Request, records: Artifact) -> tuple[Setting, ...]:
    """Settings to try, the simplest first."""
    from tasks.ahead import depth_here
    from tasks.resident import MOST_BYTES, bytes_of

    source = columns(store, request, records, "train")
    # Not on a CPU, whose memory is the columns' own (measured: 0.4 to 0.8 of their speed), and not with augmentations,
    # which are NumPy's work.
    fits = depth_here() > 0 and not request.dataset.recipe.augment and bytes_of(source) <= MOST_BYTES
    return (*IN_PROCESS, *((RESIDENT,) if fits else ()), *worker_settings())


def because(trials: list[Trial], chosen: int) -> str:
    """The choice in a sentence."""
    tried = [trial for trial in trials if trial.total is not None]
    least = min(tried, key=lambda trial: trial.total or 0)
    taken = trials[chosen]
    if taken is least:
        return f"{taken.setting}: least input time of the {len(tried)} settings tried"
    return f"{taken.setting}: within 5 % or 1 s of the least input time ({least.setting}) and simpler"


def _said(trial: Trial) -> str:
    return trial.why or f"{trial.setting}: {trial.rate or 0:,.0f} examples/s"


def _parts(store: Store, request: Request, records: Artifact) -> tuple[Any, Any]:
    """What `tune` needs: the batches of a setting, and what training does with a batch before its step."""
    import jax

    from tasks.batch_check import BatchCheck

    recipe = request.dataset.recipe
    check = BatchCheck(request.dataset.features, recipe.batch_size)
    pipelines: dict[bool, Any] = {}

    def opened(setting: Setting) -> Any:  # noqa: ANN401 - Grain loads late
        if setting.resident not in pipelines:
            pipelines[setting.resident] = open_pipeline(store, request, records, resident=setting.resident)
        pipeline = pipelines[setting.resident]
        stop = min(pipeline.order.total_steps(recipe.epochs), MOST_STEPS)
        return pipeline.iterate(0, stop, **setting.reading)

    def take(step: int, batch: Any) -> None:  # noqa: ANN401
        if not any(isinstance(column, jax.Array) for column in batch.values()):
            check(batch, step)
        jax.block_until_ready(jax.device_put(batch))

    return opened, take


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
    """The rows of a split as the model sees them, [rows, *shape] a feature, from where their size puts them.

    `tiers.py` says where that is.

    Raises:
        ArtifactDamaged: A shard isn't what it was when it was written.
    """
    from tasks.tiers import open_rows

    folder = store.root / "columns" / request.name / records.digest[:32] / split
    rows = open_rows(_shards(store, request, records, split), folder)
    return rows if request.fitted is None else Transformed(rows, request.fitted)


def read_columns(
    store: Store, request: Request, records: Artifact, split: str, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """Whole columns of a split, [N, *shape] each."""
    if not names:
        return {}
    source = columns(store, request, records, split)
    blocks = [
        source.read(np.arange(i, min(i + ROWS_AT_ONCE, len(source)))) for i in range(0, len(source), ROWS_AT_ONCE)
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def tier(store: Store, request: Request, records: Artifact) -> str:
    """Where the train split is read from."""
    from tasks.tiers import tier_of

    shards = _shards(store, request, records, "train")
    return tier_of(len(shards), shards.features)


def _shards(store: Store, request: Request, records: Artifact, split: str) -> Any:  # noqa: ANN401
    features = request.dataset.features if request.fitted is None else request.fitted.takes
    return open_split(store.path(records), store.facts(records), split, features)


def as_trained(request: Request, weights: Path) -> Request:
    """The request with the transforms that lie beside some weights, which may be others than today's.

    Labels keep today's classes, which are matched by name; a number is as the records have it.

    Raises:
        ArtifactDamaged: They can't be read.
        CheckpointMismatch: They are of features that today's records don't have.
    """
    own = read_fitted(weights)
    if own is None and request.fitted is None:
        return request
    today = as_recorded(request).fitted or Fitted(request.dataset.features)
    label = request.dataset.label
    steps = [step for step in own.steps if step.name != label] if own is not None else []
    for name in {name for step in steps for name in step.takes or (step.name,)} & set(own.takes if own else ()):
        if own is not None and layout(own.takes.get(name)) != layout(today.takes.get(name)):
            raise CheckpointMismatch(
                "the weights' transforms are of another feature", field=name, got=layout(today.takes.get(name)),
                expected=layout(own.takes.get(name)),
            )  # fmt: skip
    return replace(request, fitted=Fitted(today.takes, (*steps, *(step for step in today.steps if step.name == label))))


def as_recorded(request: Request) -> Request:
    """The request with a label that is a number in the unit of the records: scaling it is the training's own matter."""
    if request.fitted is None or request.dataset.features[request.dataset.label].classes:
        return request
    steps = tuple(step for step in request.fitted.steps if step.name != request.dataset.label)
    return replace(request, fitted=Fitted(request.fitted.takes, steps))


def layout(feature: Feature | None) -> str:
    """Type and shape of a feature, "nothing" for None."""
    return "nothing" if feature is None else f"{feature.dtype}{list(feature.shape)}"


def open_pipeline(store: Store, request: Request, records: Artifact, *, resident: bool = False) -> Any:  # noqa: ANN401
    """The train split's pipeline: global order, augmentation, provenance of its state.

    Args:
        store: Of the records.
        request: Whose recipe says batch size, seed and augmentation.
        records: The shards.
        resident: Keeps the split on the device; batches are then arrays there.
    """
    from tasks.pipeline import Pipeline

    recipe = request.dataset.recipe
    source = columns(store, request, records, "train")
    digest = source.digest  # of columns it is the same for every cut into shards
    if resident:
        from tasks.resident import Resident

        source = Resident(source)
    order = train_order(store, request, records)
    return Pipeline(
        source, order, inputs=request.dataset.inputs, augment=recipe.augment, digest=digest, split="train"
    )  # fmt: skip


def train_order(store: Store, request: Request, records: Artifact) -> Any:  # noqa: ANN401
    """The order in which a training sees the train split."""
    from tasks.tiers import order_of

    recipe = request.dataset.recipe
    return order_of(_shards(store, request, records, "train"), recipe.batch_size, recipe.seed)


def chosen_setting(store: Store, plan: Artifact) -> Setting:
    """The setting that a plan chose."""
    chosen = read_json(store.path(plan) / PLAN)["chosen"]
    return Setting(**{name: chosen[name] for name in ("threads", "prefetch", "workers", "resident")})


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


feed = Stage("feed", plan_input, _reads, libraries=("grain", "numpy"), advisory=frozenset({"report"}), exact=False)
