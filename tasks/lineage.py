"""Trainings that are the start of one another: with a schedule that doesn't look at the end, more epochs only go on.

The first three epochs are the same, bit for bit, in a training that runs for three and in one that runs for five, if
the learning rate is constant after a warm-up of the same length. So the longer one goes on from the checkpoints of the
shorter one. With "cosine" and "one-cycle" each step's rate depends on the number of steps, and it starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets.errors import CheckpointCorrupt, CheckpointError, CheckpointLocked
from datasets.schema import Recipe
from tasks.canonical import canonical
from tasks.checkpoint import Checkpoints, Restored
from tasks.durable import write_bytes
from tasks.metric_log import read_until
from tasks.optimizers import updates_of
from tasks.progress import LOG
from tasks.stage import key_of

LINEAGE = "lineage"


def lineage(components: Mapping[str, Any], recipe: Recipe, total_steps: int) -> str | None:
    """A key that trainings share if one is the start of the other; None if the schedule doesn't allow it.

    Args:
        components: Of the key of `fit`; all but the recipe's epochs and warm-up count.
        recipe: Of the training.
        total_steps: Of the training.
    """
    if recipe.schedule != "constant":
        return None
    parameters = {name: value for name, value in components.get("parameters", {}).items() if name != "recipe"}
    return key_of({
        **components, "parameters": parameters, "recipe": canonical(replace(recipe, epochs=1, warmup=0.0), set()),
        "warmup": int(recipe.warmup * updates_of(recipe, total_steps)),
    })  # fmt: skip


def go_on_from_shorter(
    folder: Path, line: str | None, total_steps: int, abstract: Any, log: str, *, anew: bool = False,  # noqa: ANN401
) -> tuple[Path, Restored | None]:  # fmt: skip
    """The newest checkpoint of another training of this line and its folder; None and this folder if there is none.

    The metric log of the other folder is copied to this one.

    Args:
        folder: Of this training's checkpoints, which has none yet; those of other trainings are beside it.
        line: Its `lineage`, which is written down in the folder.
        total_steps: Of this training; later checkpoints are no part of it.
        abstract: As `Checkpoints.restore`.
        log: Name of the metric log.
        anew: Looks for none.

    Raises:
        CheckpointError: The folder can't be written.
    """
    if line is None:
        return folder, None
    write_text(folder / LINEAGE, line)
    if anew:
        return folder, None
    found: tuple[Path, Restored] | None = None
    for other in _relatives(folder, line):
        restored = newest_in(other, abstract, log, above=found[1].step if found else -1, most=total_steps)
        found = found if restored is None else (other, restored)
    if found is None:
        return folder, None
    other, restored = found
    write_text(folder / log, read_until(other / log, restored.meta["metrics"]).decode())
    LOG.info("goes on from step %d of an equal training with another number of epochs, %s", restored.step, other.name)
    return other, restored


def newest_in(folder: Path, abstract: Any, log: str, *, above: int, most: int | None = None) -> Restored | None:  # noqa: ANN401
    """The newest sound checkpoint of another training; None if it has none, or is written by a living process.

    Args:
        folder: Of its checkpoints.
        abstract: As `Checkpoints.restore`.
        log: Name of the metric log, which must be sound too.
        above: Only steps above this one.
        most: Only steps up to this one; None for all.
    """
    with suppress(CheckpointLocked), Checkpoints(folder, warn=LOG.warning, keep_best=0) as checkpoints:
        steps = [step for step in checkpoints.steps() if step > above and (most is None or step <= most)]
        for step in reversed(steps):
            with suppress(CheckpointCorrupt):
                restored = checkpoints.restore(step, abstract)
                read_until(folder / log, restored.meta["metrics"])
                return restored
    return None


def _relatives(folder: Path, line: str) -> Iterator[Path]:
    for other in sorted(folder.parent.iterdir()):
        if other != folder and (other / LINEAGE).is_file() and (other / LINEAGE).read_text() == line:
            yield other


def write_text(path: Path, text: str) -> None:
    """Writes a small file; what goes wrong is the checkpoints' trouble."""
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise CheckpointError("the folder for checkpoints can't be used", file=path, got=error) from error
