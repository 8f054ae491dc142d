"""Debug mode: every value that a step makes is checked while it is made, and every layer's output besides. Slow.

Chex's value assertions and `checkify.check` can't stand in a plain compiled step: they raise while it is traced, or
never. Here the step is turned into one that carries its errors along (`jax.experimental.checkify`), so that they may.
In a model of your own:

    def __call__(self, x):
        scale = jnp.linalg.norm(x, axis=1)
        expect(scale.min() > 0, "a row of zeros has no direction")   # nothing outside of debug mode
        ...
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental import checkify

from datasets.errors import NonFiniteError
from tasks.carry import Carry
from tasks.step import Batch, LossFn, TrainStep
from tasks.step_metrics import StepMetrics

_ON = contextvars.ContextVar("debug_checks", default=False)


def expect(condition: Any, message: str, **values: Any) -> None:  # noqa: ANN401
    """States that a value holds, in debug mode only; elsewhere it costs nothing because it isn't in the program.

    Args:
        condition: bool [].
        message: Shown when it doesn't hold; may name `values` in braces.
        **values: Arrays that the message shows.
    """
    if _ON.get():
        checkify.check(condition, message, **values)


def watching_layers(loss: LossFn) -> LossFn:
    """A loss function that, in debug mode, expects the output of each of the model's layers to be finite."""

    @functools.wraps(loss)
    def watched(model: Any, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:  # noqa: ANN401
        if not _ON.get():
            return loss(model, batch)
        with _outputs_checked(model):
            return loss(model, batch)

    return watched


@contextmanager
def _outputs_checked(model: nnx.Module) -> Iterator[None]:
    paths = {id(node): "/".join(map(str, path)) or "the model" for path, node in nnx.iter_modules(model)}
    kinds = {type(node) for _, node in nnx.iter_modules(model) if "__call__" in dir(type(node))}
    with ExitStack() as stack:
        for kind in kinds:  # Python looks for __call__ at the class, so that is where it is replaced meanwhile
            stack.enter_context(_replaced(kind, paths))
        yield


@contextmanager
def _replaced(kind: Any, paths: dict[int, str]) -> Iterator[None]:  # noqa: ANN401
    original, own = kind.__call__, "__call__" in vars(kind)

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        out = original(self, *args, **kwargs)
        for leaf in jax.tree.leaves(out):
            if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating):
                bad = jnp.sum(~jnp.isfinite(leaf))
                where = f"layer {paths.get(id(self), kind.__name__)}"
                expect(bad == 0, where + " gives {bad} values that aren't finite, of " + str(leaf.size), bad=bad)
        return out

    kind.__call__ = checked
    try:
        yield
    finally:
        if own:
            kind.__call__ = original
        else:
            del kind.__call__


class DebugStep:
    """Takes the place of a TrainStep: the same numbers but for rounding, checked one by one, nothing donated.

    Args:
        step: Made with a loss function from `watching_layers`.
    """

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        errors = checkify.user_checks | checkify.float_checks
        self._checked = jax.jit(checkify.checkify(step.function, errors=errors))

    def __call__(self, carry: Carry, batch: Batch) -> tuple[Carry, StepMetrics]:
        """One batch, as `TrainStep.__call__`; `carry` stays alive.

        Raises:
            NonFiniteError: A check failed; the fact `check` has its text and the place in the code.
        """
        token = _ON.set(True)
        try:
            error, (new, metrics) = self._checked(carry, batch)
        finally:
            _ON.reset(token)
        if (text := error.get()) is not None:
            raise NonFiniteError(
                f"step {int(carry.step)}: a check of debug mode failed", step=int(carry.step), check=text.strip(),
                line=self._line(carry, batch), cure="the same run without --debug-checks writes a capsule to replay",
            )  # fmt: skip
        return new, StepMetrics.of(metrics)

    def _line(self, carry: Carry, batch: Batch) -> str | None:
        from tasks.replay import first_line

        return first_line(self.step, carry, batch, infs=True)
