"""Which steps of a training stay, and what start-up does with everything else in its folder."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from datasets.errors import CheckpointCorrupt
from tasks.snapshot import Manifest, read_manifest

SAVING, TRASH, DAMAGED = ".saving-", ".trash-", "damaged-"
DAMAGED_KEPT = 4

Warn = Callable[[str], None]


def best_step(kept: Mapping[int, Manifest], metric: str | None, mode: str) -> int | None:
    """The step with the best finite metric, the earliest of equals; None if no step has one."""
    return next(iter(_ranked(kept, metric, mode)), None)


def steps_to_drop(
    kept: Mapping[int, Manifest], *, keep_last: int, keep_best: int, metric: str | None, mode: str
) -> list[int]:
    """Those that are neither among the latest `keep_last` nor among the best `keep_best`."""
    stay = {*sorted(kept)[-keep_last:], *_ranked(kept, metric, mode)[:keep_best]}
    return [step for step in sorted(kept) if step not in stay]


def _ranked(kept: Mapping[int, Manifest], metric: str | None, mode: str) -> list[int]:
    sign = 1 if mode == "min" else -1
    return sorted(
        (step for step in kept if metric in kept[step].metrics),
        key=lambda step: (sign * kept[step].metrics[str(metric)], step),
    )


def scrub(root: Path, warn: Warn) -> dict[int, Manifest]:
    """The sound steps in a folder, after clearing what a kill leaves there.

    Half-written and half-deleted steps have names of their own and are removed. A folder with a step's name that isn't
    sound (no manifest, empty, cut, another step's) was damaged after its commit: it is set aside and reported.
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
    return sorted(root.glob(f"{DAMAGED}*-*"), key=damaged_step)


def damaged_step(path: Path) -> int:
    """Step of a folder that was set aside."""
    return int(path.name.split("-")[1])


def drop(path: Path) -> None:
    """Removes a step; a kill in the middle can't leave half of it under a step's name."""
    if path.exists():
        trash = path.with_name(f"{TRASH}{path.name}-{uuid.uuid4().hex[:6]}")
        path.rename(trash)
        remove(trash)


def remove(path: Path) -> None:
    """Removes a file, a link or a folder; it may be gone already."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
