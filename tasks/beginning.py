"""Where a training goes on from: its own newest checkpoint, that of another mesh, or that of a shorter training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.schema import Recipe
from tasks import snapshot
from tasks.checkpoint import Checkpoints, Restored
from tasks.lineage import go_on_from_shorter, lineage
from tasks.mesh import Mesh
from tasks.metric_log import read_until
from tasks.other_mesh import go_on_from_other_mesh
from tasks.silent import NoCheckpoints


def beginning(
    mesh: Mesh, checkpoints: Checkpoints | NoCheckpoints, folder: Path, components: Mapping[str, Any], recipe: Recipe,
    total_steps: int, abstract: Any, log: str, *, anew: bool,  # noqa: ANN401
) -> Restored | None:  # fmt: skip
    """The checkpoint that a training goes on from, the same in all of its processes; None to start at step 0.

    The first process looks, verifies and sets damage aside; the others read and verify the one step that it names.

    Args:
        mesh: Of the training.
        checkpoints: Those in `folder`.
        folder: Of this training's checkpoints.
        components: Of its key.
        recipe: Of the training.
        total_steps: Of the training.
        abstract: As `Checkpoints.restore`.
        log: Name of the metric log in the folder.
        anew: Takes none of another training; the folder is empty then.

    Raises:
        CheckpointCorrupt, CheckpointMismatch, CheckpointError: As `Checkpoints.restore_latest`.
    """
    if isinstance(checkpoints, NoCheckpoints):
        said = mesh.told("")
        if not said:
            return None
        name, step = said.split()
        state, meta, manifest = snapshot.read(folder.parent / name / step, abstract)
        return Restored(int(step), state, meta, manifest.metrics)
    restored = checkpoints.restore_latest(abstract, check=lambda meta: read_until(folder / log, meta["metrics"]))
    where = folder
    if not anew:
        where, restored = go_on_from_other_mesh(folder, components, restored, abstract, log)
    if restored is None:
        line = lineage(components, recipe, total_steps)
        where, restored = go_on_from_shorter(folder, line, total_steps, abstract, log, anew=anew)
    mesh.told("" if restored is None else f"{where.name} {restored.step}")
    return restored
