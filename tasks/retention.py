"""Which steps of a training stay, and what start-up does with everything else in its folder."""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from datasets.errors import CheckpointCorrupt, ParameterError
from datasets.schema import check_int
from tasks.durable import remove
from tasks.snapshot import Manifest, read_manifest

SAVING, TRASH, DAMAGED = ".saving-", ".trash-", "damaged-"
DAMAGED_KEPT = 4

Warn = Callable[[str], None]
Kept = Mapping[int, Manifest]
"""Committed steps."""


@dataclass(frozen=True)
class Retention:
    """The latest N and the best K, each counted on its own, so that a good old step never displaces the newest.

    Attributes:
        last: How many of the newest stay, at least 2: one to fall back to.
        best: How many of the best stay besides.
        metric: Which metric says what is best; None keeps none. NaN, infinite and missing ones are never best.
        mode: "min" or "max".
    """

    last: int
    best: int
    metric: str | None
    mode: str

    def __post_init__(self) -> None:
        check_int("keep_last", self.last, 2)
        check_int("keep_best", self.best, 0)
        if self.mode not in ("min", "max"):
            raise ParameterError(
                "a metric is best at its min or max", parameter="mode", got=self.mode, expected="min or max"
            )

    def ranked(self, kept: Kept) -> list[int]:
        """Steps with a finite metric, the best first, the earlier of equals first."""
        sign = 1 if self.mode == "min" else -1
        scores = {step: found.metrics[self.metric] for step, found in kept.items() if self.metric in found.metrics}
        return sorted(scores, key=lambda step: (sign * scores[step], step))

    def would_be_best(self, kept: Kept, metrics: Mapping[str, float]) -> bool:
        """Whether a later step with these metrics would be among the best of all there are."""
        later = max(kept, default=0) + 1
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return later in self.ranked({**kept, later: Manifest(later, finite, {})})[: self.best]

    def retire(self, root: Path, kept: Kept) -> dict[int, Manifest]:
        """Removes the steps that needn't stay, and damaged ones older than all of the latest; returns what stays."""
        latest = sorted(kept)[-self.last :]
        stay = {*latest, *self.ranked(kept)[: self.best]}
        for step in kept:
            if step not in stay:
                _drop(root / str(step))
        for path in damaged(root):
            if len(latest) == self.last and damaged_step(path) < latest[0]:
                remove(path)
        return {step: found for step, found in kept.items() if step in stay}


def scrub(root: Path, warn: Warn) -> dict[int, Manifest]:
    """The whole steps in a folder, after clearing what a kill leaves there.

    Half-written and half-deleted steps have names of their own and are removed. A folder with a step's name that isn't
    whole (no manifest, empty, cut, another step's) was damaged after its commit: it is set aside and reported.
    Contents of files aren't read.
    """
    kept: dict[int, Manifest] = {}
    for path in sorted(root.iterdir()):
        if path.name.startswith((SAVING, TRASH)) or "orbax-checkpoint-tmp" in path.name:
            remove(path)
        elif re.fullmatch(r"0|[1-9][0-9]*", path.name):
            try:
                kept[int(path.name)] = read_manifest(path)
            except CheckpointCorrupt as error:
                set_aside(path, error, warn)
    return kept


def set_aside(path: Path, why: CheckpointCorrupt, warn: Warn) -> None:
    """Renames a damaged step, so that nothing takes it for a good one; the newest few can be looked at."""
    target = path.with_name(f"{DAMAGED}{path.name}-{uuid.uuid4().hex[:6]}")
    path.rename(target)
    warn(f"{why}\n  step {path.name} was set aside as {target.name}")
    for old in damaged(path.parent)[:-DAMAGED_KEPT]:
        remove(old)


def damaged(root: Path) -> list[Path]:
    """Steps that were set aside, the lowest first."""
    found = (path for path in root.iterdir() if re.fullmatch(rf"{DAMAGED}[0-9]+-[0-9a-f]+", path.name))
    return sorted(found, key=damaged_step)


def damaged_step(path: Path) -> int:
    """Step of a folder that was set aside."""
    return int(path.name.split("-")[1])


def _drop(path: Path) -> None:
    # First out of the way, so that a kill can't leave half a step under a step's name.
    if path.exists():
        trash = path.with_name(f"{TRASH}{path.name}-{uuid.uuid4().hex[:6]}")
        path.rename(trash)
        remove(trash)


def remove_attempt(partial: Path, *, seconds: float = 2.0) -> None:
    """Removes what a failed save left, if the disk lets us; the next start clears the rest.

    Other threads of Orbax may still write into it when the first of them has failed, so it is tried again for a while.
    """
    deadline = time.monotonic() + seconds
    while left := list(partial.parent.glob(f"{partial.name}*")):
        for litter in left:
            with suppress(OSError):
                remove(litter)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
