"""Raw data to a proven model: fetch > convert > validate (> transform) > feed > fit > evaluate > promote.

python -m flows.train mnist --epochs 3 --learning-rate 1e-3
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any, Literal

from tasks.server import NO_RESULTS, start_ahead

start_ahead(__name__)  # of this command: its server starts while Prefect is imported

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from tasks.artifact import Artifact
from tasks.command import Command
from tasks.convert import convert
from tasks.deadline import deadline
from tasks.evaluate import evaluate
from tasks.feed import feed
from tasks.fetch import fetch, prepared
from tasks.fit import fit
from tasks.head_start import name_and_begin, run_of
from tasks.left_running import end_stages
from tasks.old_programs import bounded
from tasks.progress import LOG
from tasks.promote import promote
from tasks.publish import last_shown, publish, shown_before
from tasks.request import DEBUG_CHECKS, refuse_scheduled_debug
from tasks.run_record import write_run
from tasks.stage import Run
from tasks.summary import show, summarise
from tasks.transform import transformed
from tasks.validate import validate

Count = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
StageName = Literal["fetch", "convert", "validate", "transform", "feed", "fit", "evaluate", "promote"]


def stages(run: Run) -> None:
    """The order of the stages, and what each takes from those before it."""
    promote(run, **candidate(run))


def candidate(run: Run) -> dict[str, Artifact]:
    """All stages but the last: a model that isn't held against the champion yet."""
    inputs = ready(run)
    records = inputs["records"]
    weights = fit(run, **inputs)
    evaluation = evaluate(run, records=records, weights=weights)
    return {"records": records, "weights": weights, "evaluation": evaluation}


def ready(run: Run) -> dict[str, Artifact]:
    """The stages before `fit`, and what it takes from them."""
    raw = fetch(run)
    records = convert(run, raw=raw)
    report = validate(run, records=records)
    transforms = transformed(run, records, report)
    plan = feed(run, records=records, report=report, **transforms)
    return {"records": records, "report": report, "plan": plan, **transforms}


@flow(
    name="train",
    flow_run_name=name_and_begin,
    validate_parameters=True,
    persist_result=False,
    result_storage=NO_RESULTS,
    on_crashed=[end_stages],
)
def train(
    dataset: str,
    model: str | None = None,
    epochs: Count | None = None,
    batch_size: Count | None = None,
    learning_rate: Number | None = None,
    seed: Annotated[int, Field(strict=True, ge=0)] | None = None,
    store: str | None = None,
    raw: str | None = None,
    checkpoint_every: Count | None = None,
    keep_best: Annotated[int, Field(strict=True, ge=0)] = 1,
    warm_start: str | None = None,
    warm_start_only: str | None = None,
    on_nonfinite: Literal["stop", "skip"] | None = None,
    debug_checks: Literal["on", "force"] | None = None,
    refresh: StageName | None = None,
    from_stage: StageName | None = None,
    timeout: Number | None = None,
    devices: Count = 1,
    processes: Count = 1,
    process: Annotated[int, Field(strict=True, ge=0)] | None = None,
    coordinator: str | None = None,
    recipe: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains the model of a dataset and promotes it if it is better than the champion.

    Args:
        dataset: Name of a file under `datasets/`.
        model: Name of a file under `tasks/models/`; the dataset file's if empty, as with all below.
        epochs: Passes over the train split.
        batch_size: Examples a step.
        learning_rate: Peak of the schedule.
        seed: Of the first weights, the order of examples, dropout and augmentation.
        store: Folder of the artifacts.
        raw: Folder of raw files to use instead of the dataset's source.
        checkpoint_every: Steps between checkpoints, besides one every 30 seconds.
        keep_best: How many checkpoints with the least test loss stay besides the two newest.
        warm_start: Weights to start from instead of random ones: "champion", or a path to a folder of weights or to a
            checkpoint.
        warm_start_only: Which of them, as patterns of paths separated by commas: "first.*,second.*" for a backbone.
        on_nonfinite: What a NaN or infinite loss or gradient does: "stop" the training, or "skip" the batch.
        debug_checks: "on" to check every value of every step, which is slow; "force" also in a scheduled run.
        refresh: A stage that runs even if its result is in the cache; a training starts at its first step.
        from_stage: The same for a stage and all that follow.
        timeout: Seconds after which the run is stopped; a training saves before, and the next run goes on from there.
        devices: That share each batch, in every process.
        processes: That share each batch, all of them on this host, unless there is a run a host.
        process: Which of the processes this run starts, counted from 0, where there is a run a host.
        coordinator: Where the processes of several hosts meet: "host:port" of process 0.
        recipe: Any other fields of the recipe (`datasets/recipe.py`), such as {"optimizer": "sgd", "clip_norm": 1.0}.
    """
    refuse_scheduled_debug(debug_checks)
    request = prepared(
        dataset, store=store, raw=raw, checkpoint_every=checkpoint_every, keep_best=keep_best,
        warm_start=warm_start, warm_start_only=warm_start_only,
        model=model, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed,
        on_nonfinite=on_nonfinite, debug_checks=debug_checks,
        refresh=refresh, from_stage=from_stage, timeout=timeout,
        devices=devices, processes=processes, process=process, coordinator=coordinator, recipe=recipe,
    )  # fmt: skip
    run = run_of(request)
    with ThreadPoolExecutor(1) as aside:
        before = aside.submit(copy_context().run, last_shown, run)
        with deadline(run.request.timeout), bounded(), run.hashing:
            stages(run)
    LOG.info("from the cache: %s", ", ".join(one.name for one in run.outcomes if one.state == "cached") or "nothing")
    summary = summarise(run, str(flow_run.id))
    shown_by = shown_before(run, summary, before.result())
    write_run(run, summary, shown_by)
    if shown_by is None:
        publish(run, summary)
    return summary


def options(command: Command) -> Command:
    """Gives a command the parameters of `train` as options."""
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.add("--model", help="name of a file under tasks/models/", text=True)
    command.add("--epochs", help="passes over the train split")
    command.add("--batch-size", help="examples a step")
    command.add("--learning-rate", help="peak of the schedule")
    command.add("--seed", help="of weights, order, dropout and augmentation")
    command.add_fields("--set", dest="recipe", help="any field of the recipe, such as clip_norm=1.0 or optimizer=sgd")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    command.add("--raw", help="folder of raw files to use instead of the source", text=True)
    command.add("--checkpoint-every", help="steps between checkpoints, besides one every 30 seconds")
    command.add("--warm-start", help="weights to start from: champion, a folder of weights or a checkpoint", text=True)
    command.add("--warm-start-only", help="patterns of their paths, such as 'first.*,second.*'", text=True)
    command.add("--on-nonfinite", help="stop at a batch with a NaN or infinite loss or gradient, or skip it", text=True)
    command.parser.add_argument(
        "--debug-checks", nargs="?", const="on", choices=DEBUG_CHECKS,
        help="check every value of every step (slow); 'force': also in a scheduled run",
    )  # fmt: skip
    command.add("--refresh", help="a stage that runs even if its result is in the cache", text=True)
    command.parser.add_argument("--from", dest="from_stage", metavar="STAGE",
                                help="the same for a stage and all that follow")  # fmt: skip
    command.add("--timeout", help="seconds after which the run is stopped; the next one goes on from there")
    command.add("--devices", help="that share each batch, in every process (default: 1)")
    command.add("--processes", help="that share each batch, started here (default: 1)")
    command.add("--process", help="the one of them that this run starts, where each host has a run of its own")
    command.add("--coordinator", help="where these meet: host:port of process 0", text=True)
    command.add("--keep-best", help="checkpoints with the least test loss that stay besides the newest (default: 1)")
    return command


if __name__ == "__main__":
    sys.exit(options(Command("flows.train", __doc__)).run(train, show, before=partial(prepared, keep=False)))
