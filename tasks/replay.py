"""Runs a bad batch again: whether it fails as it did, which source line made the first NaN, which examples do it."""

from __future__ import annotations

import linecache
import site
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasks.capsule import Capsule, Verdict
from tasks.carry import Carry
from tasks.step import Batch, TrainStep

# Frames of these files only hand the user's function on.
_OURS = {
    str(Path(__file__).with_name(name))
    for name in ("step.py", "contracts.py", "budget.py", "replay.py", "debug_checks.py")
}
_LIBRARIES = tuple({*site.getsitepackages(), *(sysconfig.get_paths()[k] for k in ("stdlib", "purelib", "platlib"))})


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    Attributes:
        reproduced: True if the verdict is equal to the capsule's, to the last bit of the loss.
        verdict: Of the replay.
        line: The user's source line that made the first infinity or NaN, "file:line in function: code"; None if run
            eagerly, operation by operation, the step makes none.
        nan_line: The same for the first NaN, which may come later: an infinity can be meant (a mask of -inf).
        rows: Of the examples that make the step fail alone (the batch is then one example over and over). Empty if it
            takes several; all of them if it is the weights' fault, not that of an example.
        ids: Of these examples.
    """

    reproduced: bool
    verdict: Verdict | None
    line: str | None
    nan_line: str | None
    rows: tuple[int, ...]
    ids: tuple[Any, ...]


def replay(capsule: Capsule, step: TrainStep) -> Replay:
    """Runs the capsule's batch on the capsule's state through the compiled step, then line by line, then row by row.

    Args:
        capsule: From `load_capsule`.
        step: Built as in the run that failed; the program is the same, so the numbers are too.

    Raises:
        CheckpointMismatch: The step is of another model or optimizer.
        TraceBudgetExceeded: The step takes batches of another shape.
    """
    verdict = _run(capsule, step, capsule.batch)
    rows = tuple(row for row in range(step.batch_size) if _run(capsule, step, _only(capsule, row)) is not None)
    carry = capsule.carry(step)
    return Replay(
        reproduced=verdict is not None and verdict.same(capsule.verdict),
        verdict=verdict,
        line=first_line(step, carry, capsule.batch, infs=True),
        nan_line=first_line(step, carry, capsule.batch, infs=False),
        rows=rows,
        ids=tuple(capsule.ids[row] for row in rows),
    )


def _run(capsule: Capsule, step: TrainStep, batch: dict[str, np.ndarray]) -> Verdict | None:
    """The verdict on a batch; None if it is sound. The step uses its carry up, so each run gets a new one."""
    _, metrics = step(capsule.carry(step), batch)
    if bool(metrics["applied"]):
        return None
    return Verdict.of(capsule.verdict.step, metrics, step.gradient_leaves)


def _only(capsule: Capsule, row: int) -> dict[str, np.ndarray]:
    return {name: np.repeat(column[row : row + 1], len(column), axis=0) for name, column in capsule.batch.items()}


def first_line(step: TrainStep, carry: Carry, batch: Batch, *, infs: bool) -> str | None:
    """The user's line that makes the first NaN, or with `infs` the first infinity or NaN; None if there is none."""
    batch = {name: jnp.asarray(column) for name, column in batch.items()}
    # Called outside of jit, so that JAX looks at each result where the user's code asks for it. Not under disable_jit:
    # that would look inside of library functions too, where log_softmax starts a maximum at -inf.
    with jax.debug_nans(True), jax.debug_infs(infs):
        try:
            step.gradients(carry, batch)
        except FloatingPointError as error:
            return next(_user_lines(error), None)
    return None


def _user_lines(error: BaseException | None) -> Iterator[str]:
    """Lines of neither a library nor our own machinery, innermost first.

    An operation of the backward pass has no user's line on its stack; JAX then gives the line of the forward operation
    as the cause of the error.
    """
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename not in _OURS and not frame.filename.startswith((*_LIBRARIES, "<")):
                code = linecache.getline(frame.filename, frame.lineno or 0).strip()
                yield f"{frame.filename}:{frame.lineno} in {frame.name}: {code}"
        error = error.__cause__ or error.__context__
