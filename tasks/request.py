"""What a run was asked to do, checked in full before any work starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import RECIPE_FIELDS, Dataset, Files, Recipe, Rows, check_float, check_int
from tasks.fitted import Fitted
from tasks.parallel import Parallel
from tasks.recipe_changes import recipe_changes
from tasks.warm_start import WarmStart, find

CHECKOUT = Path(__file__).parent.parent
DEBUG_CHECKS = ("on", "force")
STAGES = ("fetch", "convert", "validate", "transform", "feed", "fit", "evaluate", "promote")
MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Request:
    """A checked request.

    Attributes:
        name: Of the dataset.
        dataset: With the recipe that the request changed.
        changed: Recipe fields that differ from the dataset file, for the run's name.
        store: Root of the store.
        raw: Folder of raw files to read instead of the source; None for the source.
        checkpoint_every: Steps between checkpoints besides those by time, None for by time alone; decides no byte
            of the result, so it is in no key.
        keep_best: How many of the best checkpoints stay besides the newest; in no key either.
        warm_start: Weights that the training starts from; None for random ones.
        debug_checks: Whether every value of a step is checked; such a training has a key of its own.
        again: Stages that run even if their results are in the cache; in no key.
        timeout: Seconds after which the run is stopped; in no key.
        fitted: What the dataset file's transforms learned; `dataset` is then the one that the model sees.
        parallel: Devices and processes that share each batch.
        members: Recipes of a sweep that are trained as one program, if any.
        memory: Bytes that this program may take; None for half of what is free. In no key.
    """

    name: str
    dataset: Dataset
    changed: dict[str, Any]
    store: Path
    raw: Path | None
    checkpoint_every: int | None
    keep_best: int = 1
    warm_start: WarmStart | None = None
    debug_checks: bool = False
    again: frozenset[str] = frozenset()
    timeout: float | None = None
    fitted: Fitted | None = None
    parallel: Parallel = field(default_factory=Parallel)
    members: tuple[Recipe, ...] = ()
    memory: int | None = None


def store_root(store: str | os.PathLike[str] | None = None) -> Path:
    """Where artifacts are: the argument, else GRISTMILL_STORE, else `store/`.

    Relative paths start at the checkout, so that a run finds its store from any working directory.
    """
    return CHECKOUT / (store or os.environ.get("GRISTMILL_STORE") or "store")


def model_names() -> list[str]:
    """The files under `tasks/models/`."""
    return sorted(path.stem for path in MODELS.glob("*.py") if path.stem != "__init__")


def check(
    dataset: str,
    *,
    store: str | os.PathLike[str] | None = None,
    raw: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    keep_best: int = 1,
    warm_start: str | os.PathLike[str] | None = None,
    warm_start_only: str | None = None,
    debug_checks: str | None = None,
    refresh: str | None = None,
    from_stage: str | None = None,
    timeout: float | None = None,
    devices: int = 1,
    processes: int = 1,
    process: int | None = None,
    coordinator: str | None = None,
    recipe: Mapping[str, Any] | None = None,
    **changes: Any,  # noqa: ANN401
) -> Request:
    """The request for one run of `train`.

    Args:
        dataset: Name of a file under `datasets/`.
        store: Root of the store; see `store_root`.
        raw: Folder of raw files.
        checkpoint_every: Steps between checkpoints besides those by time.
        keep_best: How many of the best checkpoints stay besides the newest.
        warm_start: Weights to start from: "champion" or a path; see `tasks.warm_start`.
        warm_start_only: Patterns of the paths to take, separated by commas.
        debug_checks: "on" or "force" to check every value of a step; "force" also in a run that a schedule started.
        refresh: A stage that runs even if its result is in the cache.
        from_stage: The same for a stage and all that follow.
        timeout: Seconds after which the run is stopped.
        devices: Of each process.
        processes: That share each batch.
        process: The one that this run starts; None for all of them, on this host.
        coordinator: Where the processes of several runs meet.
        recipe: More recipe fields; see `recipe_changes`.
        changes: Recipe fields; None means the dataset file's value.

    Raises:
        UnknownNameError: No such dataset, model or recipe field.
        ParameterError: A value that can't work: 0 epochs, NaN, True for a number, a batch larger than the data ...
    """
    known = datasets.load(dataset)
    if unknown := sorted(set(changes) - set(RECIPE_FIELDS)):
        raise UnknownNameError.among("recipe field", unknown[0], RECIPE_FIELDS)
    given = recipe_changes(recipe, changes)
    changed_recipe = replace(known.recipe, **given)
    if changed_recipe.model not in model_names():
        raise UnknownNameError.among("model", changed_recipe.model, model_names())
    if debug_checks not in (None, *DEBUG_CHECKS):
        raise UnknownNameError.among("way of debug_checks", debug_checks, DEBUG_CHECKS)
    if checkpoint_every is not None:
        check_int("checkpoint_every", checkpoint_every, 1)
    check_int("keep_best", keep_best, 0)
    if timeout is not None:
        check_float("timeout", timeout, 0.001, float("inf"))
    train = known.splits["train"] if isinstance(known.splits, Mapping) else None
    size = train.stop - train.start if isinstance(train, Rows) else train.count if isinstance(train, Files) else None
    if size is not None and changed_recipe.batch_size > size:
        raise ParameterError(
            "a batch is larger than the train split", parameter="batch_size", got=changed_recipe.batch_size,
            expected=f"at most {size} examples", cure="a smaller --batch-size",
        )  # fmt: skip
    parallel = Parallel(devices, processes, process, coordinator)
    parallel.check_batch_size(changed_recipe.batch_size)
    if parallel.size > 1 and debug_checks is not None:
        raise ParameterError("debug mode checks the step of one device", parameter="debug_checks", got=debug_checks,
                             cure="leave out --devices and --processes")  # fmt: skip
    if warm_start_only is not None and warm_start is None:
        raise ParameterError("patterns of weights without weights to start from", parameter="warm_start_only",
                             got=warm_start_only, cure="--warm-start champion, or a path")  # fmt: skip
    start = None if warm_start is None else find(store_root(store), dataset, os.fspath(warm_start), warm_start_only)
    changed = {name: value for name, value in given.items() if value != getattr(known.recipe, name)}
    return Request(
        dataset, replace(known, recipe=changed_recipe), changed, store_root(store),
        (Path.cwd() / raw) if raw is not None else None, checkpoint_every, keep_best, start,
        debug_checks is not None, _again(refresh, from_stage), timeout, parallel=parallel,
    )  # fmt: skip


def _again(refresh: str | None, from_stage: str | None) -> frozenset[str]:
    """The stages that two options name."""
    for given in (refresh, from_stage):
        if given is not None and given not in STAGES:
            raise UnknownNameError.among("stage", given, STAGES)
    following = STAGES[STAGES.index(from_stage) :] if from_stage is not None else ()
    return frozenset(following) | ({refresh} if refresh is not None else set())


def refuse_scheduled_debug(debug_checks: str | None) -> None:
    """Debug mode is for a person who waits: a run that a schedule started doesn't use it unless it is forced.

    Raises:
        ParameterError: It would.
    """
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    scheduled = context is not None and context.flow_run is not None and context.flow_run.auto_scheduled
    if debug_checks == "on" and scheduled:
        raise ParameterError(
            "a scheduled run doesn't check every value: it would be many times slower", parameter="debug_checks",
            got="on", cure='take it out of the schedule\'s parameters, or set it to "force"',
        )  # fmt: skip


def run_name() -> str:
    """Name of the current flow run, from its parameters: "mnist epochs=3 seed=1"."""
    from prefect.runtime import flow_run

    given = {name: value for name, value in flow_run.parameters.items() if value is not None and name in RECIPE_FIELDS}
    given |= flow_run.parameters.get("recipe") or {}
    return " ".join([str(flow_run.parameters["dataset"]), *(f"{name}={value}" for name, value in given.items())])
