"""A training that was stopped goes on with another number of devices or processes, from its furthest checkpoint.

The mesh decides in which order a gradient's parts are added, and so the last bits of the weights: it is part of the key
of `fit`, and trainings on different meshes lie side by side. Everything else is the same at every step (examples, their
order, dropout, the schedule), so a checkpoint of one may be gone on from by another. That happens only with a training
that never came to its end; the weights then say from which step on which mesh made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.progress import LOG
from tasks.stage import key_of

if TYPE_CHECKING:  # both load Orbax, which a plan does without
    from tasks.checkpoint import Restored

NOTE = "training"
Segments = list[list[int]]
"""[first step, processes, devices of each] of every mesh that a training was on, in order."""
ONE_DEVICE: Segments = [[0, 1, 1]]


def training_of(components: Mapping[str, Any]) -> str | None:
    """A key that trainings share if they differ in nothing but the mesh; None for components without parameters."""
    if "parameters" not in components:
        return None
    parameters = {name: value for name, value in components["parameters"].items() if name != "mesh"}
    return key_of({**components, "parameters": parameters})


def unfinished(folder: Path, components: Mapping[str, Any]) -> Iterator[Path]:
    """Folders of checkpoints of the same training on other meshes that has no weights yet.

    Args:
        folder: Of this training's checkpoints, which need not exist.
        components: Of its key.
    """
    training = training_of(components)
    if training is None or not folder.parent.is_dir():
        return
    weights = folder.parents[2] / "weights" / folder.parent.name
    for other in sorted(folder.parent.iterdir()):
        with suppress(OSError):  # no note: of a training that was made without one
            if other != folder and (other / NOTE).read_text() == training and not (weights / other.name).exists():
                yield other


def go_on_from_other_mesh(
    folder: Path, components: Mapping[str, Any], own: Restored | None, abstract: Any, log: str  # noqa: ANN401
) -> tuple[Path, Restored | None]:  # fmt: skip
    """The furthest checkpoint of the training, on whichever mesh it was made, and its folder.

    The metric log of another folder is copied to this one. What a living process writes to isn't touched.

    Args:
        folder: Of this training's checkpoints.
        components: Of its key.
        own: Its newest checkpoint.
        abstract: As `Checkpoints.restore`.
        log: Name of the metric log.

    Raises:
        CheckpointError: The folder can't be written.
        CheckpointMismatch: As `Checkpoints.restore`.
    """
    from tasks.lineage import newest_in, write_text
    from tasks.metric_log import read_until

    best, where = own, folder
    if (training := training_of(components)) is not None:
        write_text(folder / NOTE, training)
    for other in unfinished(folder, components):
        found = newest_in(other, abstract, log, above=-1 if best is None else best.step)
        if found is not None:
            best, where = found, other
    if best is not None and where != folder:
        write_text(folder / log, read_until(where / log, best.meta["metrics"]).decode())
        LOG.info("goes on from step %d of the same training on another mesh, %s", best.step, where.name)
    return where, best


def segments(restored: Restored | None, mesh: Mapping[str, int]) -> Segments:
    """The meshes of a training that goes on with this one."""
    this = [mesh["processes"], mesh["devices"]]
    if restored is None:
        return [[0, *this]]
    past: Segments = restored.meta.get("meshes", ONE_DEVICE)
    return past if past[-1][1:] == this else [*past, [restored.step, *this]]


def meshes_said(meshes: Segments) -> str:
    """A history of meshes in one line: "4; from step 120 on 2 processes x 1"."""
    parts = []
    for step, processes, devices in meshes:
        many = f"{processes} processes x {devices}" if processes > 1 else str(devices)
        parts.append(f"from step {step:,} on {many}" if step else many)
    return "; ".join(parts)
