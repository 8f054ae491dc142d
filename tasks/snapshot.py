"""One checkpoint on disk: a plain Orbax checkpoint, and beside it a manifest of SHA-256 digests, written last.

    12/                          the step
        state/  _CHECKPOINT_METADATA  ...     Orbax's; `orbax.checkpoint.v1.load` reads the folder as it is
        manifest.json                         ours: the step, its metrics, size and digest of every file

Orbax's custom metadata carries the caller's JSON and, for each leaf, its path, shape, dtype and the SHA-256 of its
values. So the bytes on disk are checked before Orbax reads them, and what Orbax made of them afterwards: alone it
loads a flipped bit without a word and casts dtypes silently.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp
from orbax.checkpoint.experimental.v1._src.saving import execution

from datasets.errors import ArtifactDamaged, CheckpointCorrupt, CheckpointError, CheckpointMismatch
from tasks import durable
from tasks.leaves import Leaf, blank, describe, differences, from_tree, pick, to_tree

FORMAT = 1
MANIFEST = "manifest.json"
ITEM = "state"
SHOWN = 40


@dataclass(frozen=True)
class Manifest:
    """What is known of a step without reading its arrays.

    Attributes:
        step: Counted from the start of the training.
        metrics: Finite ones only; one that was NaN or infinite can't be the best.
        files: Size in bytes and SHA-256 of each file, by its path in the step's folder.
    """

    step: int
    metrics: dict[str, float]
    files: dict[str, tuple[int, str]]


def _context() -> ocp.Context:
    """One process reads or writes by itself, also among several: the state lies whole in each of them."""
    context = ocp.Context()
    context.asynchronous.create_directories_asynchronously = False
    if jax.process_count() > 1:
        me = jax.process_index()
        context.multiprocessing.primary_host, context.multiprocessing.active_processes = me, {me}
        context.multiprocessing.barrier_sync_key_prefix = f"process-{me}"
        # Orbax 0.12.8 still asks all processes whether they save to one folder, by a program on their devices. In a
        # thread beside the training that would wait for ever, or meet another process's train step.
        execution._check_directory_consistency = lambda directory: None
    return context


def write(folder: Path, step: int, leaves: Mapping[str, Leaf], meta: Any, metrics: Mapping[str, float]) -> Manifest:  # noqa: ANN401
    """Writes a checkpoint into a folder that doesn't exist yet and syncs it, so that a rename is the commit.

    Raises:
        OSError, ValueError: Of the file system or of Orbax (a full disk is a ValueError there).
    """
    custom = {"format": FORMAT, "step": step, "meta": meta, "leaves": describe(leaves)}
    with _context():
        tree = to_tree({path: leaf.data for path, leaf in leaves.items()})
        ocp.save(str(folder), tree, checkpointable_name=ITEM, custom_metadata=custom)
    files = {
        str(path.relative_to(folder)): (path.stat().st_size, durable.sha256_file(path))
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip
    finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    body = {"format": FORMAT, "step": step, "metrics": finite, "files": files}
    durable.write_json(folder / MANIFEST, {"body": body, "sha256": _json_digest(body)})
    durable.fsync_tree(folder)
    return Manifest(step, finite, files)


def _json_digest(value: Any) -> str:  # noqa: ANN401
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a step, if it is whole; of the files it names only presence and size are looked at.

    Raises:
        CheckpointCorrupt: There is none, it was edited, it is another step's, or a file is missing or cut.
    """
    path = folder / MANIFEST
    if folder.is_symlink() or not path.is_file():
        raise CheckpointCorrupt("a checkpoint has no manifest", file=path, expected="a file", got="missing")
    try:
        content = durable.read_json(path)
        body = content["body"]
        files = {name: (size, digest) for name, (size, digest) in body["files"].items()}
        manifest = Manifest(body["step"], body["metrics"], files)
        stated, found = content["sha256"], _json_digest(body)
    except (ArtifactDamaged, LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointCorrupt("a checkpoint's manifest can't be read", file=path, got=repr(error)) from error
    if stated != found:
        raise CheckpointCorrupt("a checkpoint's manifest was altered", file=path, expected=stated, got=found)
    if body["format"] != FORMAT:
        raise CheckpointError("a checkpoint of another format", file=path, expected=FORMAT, got=body["format"])
    if folder.name.isdecimal() and manifest.step != int(folder.name):
        raise CheckpointCorrupt("a folder holds another step", file=path, expected=folder.name, got=manifest.step)
    for name, (size, _) in manifest.files.items():
        _check_file(folder / name, size, None)
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest of a step whose every byte is the one that was saved.

    Raises:
        CheckpointCorrupt: With the file, what was expected and what is there.
    """
    manifest = read_manifest(folder)
    for name, (size, digest) in manifest.files.items():
        _check_file(folder / name, size, digest)
    return manifest


def _check_file(path: Path, size: int, digest: str | None) -> None:
    said = "a file of a checkpoint isn't what was saved"
    try:
        if not path.is_file() or path.is_symlink():
            raise CheckpointCorrupt(said, file=path, expected=f"{size} bytes", got="missing")
        if (found := path.stat().st_size) != size:
            raise CheckpointCorrupt(said, file=path, expected=f"{size} bytes", got=f"{found} bytes")
        if digest and (got := durable.sha256_file(path)) != digest:
            raise CheckpointCorrupt(said, file=path, expected=f"sha256 {digest}", got=f"sha256 {got}")
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOENT):
            raise CheckpointCorrupt(said, file=path, expected=f"{size} bytes", got=error) from error
        raise CheckpointError("a checkpoint can't be read", file=path, got=error) from error


def read(folder: Path, abstract: Any) -> tuple[Any, Any, Manifest]:  # noqa: ANN401
    """State, JSON and manifest of a step, all of it verified.

    Args:
        folder: Of the step.
        abstract: A pytree with shape, dtype and sharding at its leaves (`leaves.abstract_like`, or arrays). The state
            has its structure, and each array lands committed on its leaf's sharding; where there is none, uncommitted
            on the default device.

    Raises:
        CheckpointCorrupt: Bytes aren't the ones that were saved.
        CheckpointMismatch: Paths, shapes or dtypes differ; every difference is named and nothing is loaded.
        CheckpointError: It is sound, but this version of Orbax can't read it.
    """
    manifest = verify(folder)
    try:
        custom: Any = ocp.metadata(str(folder), checkpointable_name=ITEM).custom_metadata
        described, meta = custom["leaves"], custom["meta"]
        _refuse_mismatch(folder, differences(described, abstract))
        target = to_tree(blank(described))
        with _context():
            tree: Any = ocp.load(str(folder), target, checkpointable_name=ITEM) if target else {}
    except (CheckpointMismatch, MemoryError):
        raise
    except Exception as error:
        raise CheckpointError(
            "every byte is the one that was saved, yet Orbax can't read the checkpoint",
            checkpoint=folder, got=repr(error.__cause__ or error), cure="use the Orbax version that wrote it",
        ) from error  # fmt: skip
    try:
        return from_tree(tree, described, abstract), meta, manifest
    except CheckpointCorrupt as error:
        raise CheckpointCorrupt(error.what, checkpoint=folder, **error.facts) from None


def read_arrays(folder: Path, below: str) -> dict[str, np.ndarray]:
    """The arrays of a verified step whose path starts with `below`, but keys of random generators; by path.

    Raises:
        CheckpointCorrupt, CheckpointError: As `read`.
    """
    verify(folder)
    try:
        custom: Any = ocp.metadata(str(folder), checkpointable_name=ITEM).custom_metadata
        wanted = {path: leaf for path, leaf in custom["leaves"].items() if not leaf["impl"] and path.startswith(below)}
        with _context():
            tree: Any = ocp.load(str(folder), to_tree(blank(custom["leaves"])), checkpointable_name=ITEM)
    except Exception as error:
        raise CheckpointError("Orbax can't read a checkpoint", checkpoint=folder, got=repr(error)) from error
    return {path: pick(tree, path, leaf) for path, leaf in wanted.items()}


def _refuse_mismatch(folder: Path, lines: list[str]) -> None:
    if lines:
        more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        raise CheckpointMismatch(
            "the checkpoint belongs to another model or recipe; nothing was loaded",
            checkpoint=folder, differences="\n    ".join(["", *lines[:SHOWN], *more]),
            cure="go back to the model that wrote it, or start a training of its own",
        )  # fmt: skip
