"""The host's side of the NaN firewall: remembers the last batches, looks every k steps, says what went wrong."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from datasets.errors import NonFiniteError, TrainingError
from datasets.schema import check_int
from tasks.capsule import Verdict, write_capsule
from tasks.carry import Carry
from tasks.leaves import local
from tasks.step import Batch, TrainStep

SHOWN = 8
"""Record ids and leaves that a message lists; the capsule has all of them."""


@dataclass(frozen=True)
class Skip:
    """A batch that was left out under the policy `skip`.

    Attributes:
        verdict: The step, and what was bad.
        records: Ids of the batch's records.
    """

    verdict: Verdict
    records: tuple[Any, ...]


class _Seen(NamedTuple):  # made at every step: a frozen dataclass takes three times as long
    step: int
    batch: Batch
    ids: Callable[[], Sequence[Any]]
    metrics: Mapping[str, Any]


class Firewall:
    """Watches one run of a TrainStep.

    Call `observe` after every step and `check` too: it returns at once unless `every` steps have passed, or `now` is
    given. Check with `now=True` before a checkpoint or an evaluation is made of a carry, and at the end. Who fetches
    the metrics anyway calls `passed` for the steps that were applied, and `check` only when one was not; then nothing
    waits for a step that is under way.

    Attributes:
        skips: Every batch that was left out so far, in order.
    """

    def __init__(
        self,
        step: TrainStep,
        *,
        every: int = 10,
        folder: Path | None = None,
        context: Mapping[str, Any] | None = None,
        whole: Callable[[int, Batch], Batch] = lambda step, batch: batch,
    ) -> None:
        """Starts with an empty memory.

        Args:
            step: The step that is watched.
            every: Steps between two looks; the batches since the last look stay in memory.
            folder: Where capsules go; None writes none.
            context: JSON that a replay needs to build the same step (dataset, parameters, seeds); put in the capsule.
            whole: Makes the global batch of a step, for a capsule, where the observed one is this process's share.

        Raises:
            ParameterError: `every` isn't a whole number of at least 1.
        """
        check_int("every", every, 1)
        self._step = step
        self._every = every
        self._folder, self._whole = folder, whole
        self._context = dict(context or {})
        self._ring: collections.deque[_Seen] = collections.deque(maxlen=every + 1)
        self._unchecked = 0  # of the newest in the ring
        self._skipped = -1  # not known until the first look: a resumed carry brings its own count
        self.skips: list[Skip] = []

    def observe(self, step: int, batch: Batch, ids: Callable[[], Sequence[Any]], metrics: Mapping[str, Any]) -> None:
        """Remembers a batch and what its step gave; fetches nothing.

        Args:
            step: Index of the batch, which is the carry's `step` before it.
            batch: As it was given to the step; its arrays must not be reused.
            ids: Gives those of its records, one a row: anything that JSON can hold; asked only about a bad batch.
            metrics: As the step gave them.

        Raises:
            TrainingError: More than `every` steps passed without a look, so that a bad batch could be forgotten.
        """
        if self._unchecked > self._every:
            raise TrainingError("steps went by unchecked", got=self._unchecked, expected=f"at most {self._every}")
        self._ring.append(_Seen(step, batch, ids, metrics))
        self._unchecked += 1

    def passed(self, step: int) -> None:
        """Takes note that every batch up to `step` was applied, as its metric `applied` says: no look is due for it."""
        self._unchecked = sum(seen.step > step for seen in list(self._ring)[len(self._ring) - self._unchecked :])

    def check(self, carry: Carry, *, now: bool = False) -> list[Skip]:
        """Looks at the latch if it is time to, which waits for the device.

        Args:
            carry: Of the newest step.
            now: Look in any case.

        Returns:
            The batches that were left out since the last look.

        Raises:
            NonFiniteError: The latch tripped. Facts: step, kind, loss, leaves, records, capsule.
        """
        if self._unchecked < self._every and not now:
            return []
        skipped, tripped_at = (int(x) for x in jax.device_get((carry.skipped, carry.tripped_at)))
        new = self._left_out(tripped_at) if skipped not in (0, self._skipped) else []
        self.skips += new
        self._skipped, self._unchecked = skipped, 0
        if tripped_at >= 0:
            raise self._tripped(carry, tripped_at, skipped)
        return new

    def _left_out(self, tripped_at: int) -> list[Skip]:
        fresh = list(self._ring)[len(self._ring) - self._unchecked :]
        bad = [s for s in fresh if not bool(s.metrics["applied"]) and (tripped_at < 0 or s.step < tripped_at)]
        return [Skip(self._verdict(s), tuple(s.ids())) for s in bad]

    def _verdict(self, seen: _Seen) -> Verdict:
        return Verdict.of(seen.step, seen.metrics, self._step.gradient_leaves)

    def _tripped(self, carry: Carry, tripped_at: int, skipped: int) -> NonFiniteError:
        seen = next((s for s in self._ring if s.step == tripped_at), None)
        if seen is None:
            return NonFiniteError(
                "the latch tripped at a batch that isn't in memory: was this carry tripped before it came here?",
                step=tripped_at, cure="resume from the last checkpoint",
            )  # fmt: skip
        verdict = self._verdict(seen)
        capsule = None
        if self._folder is not None:
            batch, own = self._whole(seen.step, seen.batch), jax.tree.map(local, carry)
            capsule = write_capsule(self._folder, self._step, own, batch, seen.ids(), verdict, self._context)
        what = f"step {tripped_at}: the {verdict.kind} isn't finite; the weights are those of before this batch"
        if self._step.policy.skip:
            what += f", and no more batches may be skipped ({int(carry.streak)} in a row, {skipped} in all)"
        return NonFiniteError(
            what, step=tripped_at, kind=verdict.kind, loss=verdict.loss, leaves=_few(verdict.leaves) or None,
            records=_few(seen.ids()), skipped=skipped or None, capsule=capsule,
            cure=None if capsule is None else f"python -m flows.replay {capsule}",
        )  # fmt: skip


def _few(items: Sequence[Any]) -> str:
    shown = ", ".join(str(x.item() if isinstance(x, np.generic) else x) for x in items[:SHOWN])
    return shown + (f", ... ({len(items)} in all)" if len(items) > SHOWN else "")
