"""What is left of a bad batch: one folder that says everything about it, and a replay that finds where it went wrong.

    step-00000123-4f0c.../
        batch.npz       the exact batch, one array a column
        state.npz       the carry before it; typed random keys as their words
        capsule.json    step, verdict, record ids, context, versions, and a description of every array of the state
        manifest.json   size and SHA-256 of the three files above

The folder appears whole under its name or not at all. Nothing is pickled. Its name is made of its content, so that a
retry that fails in the same way finds it there already.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from datasets.errors import ArtifactDamaged, CheckpointMismatch
from datasets.schema import Columns
from tasks import durable, leaves
from tasks.carry import Carry
from tasks.step import Batch, TrainStep

_FORMAT = 1
_FILES = ("batch.npz", "capsule.json", "state.npz")
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "chex", "numpy")


@dataclass(frozen=True)
class Verdict:
    """What was bad about a batch.

    Attributes:
        step: Index of the batch.
        kind: "loss" if the loss is NaN or infinite, "grad" if only gradients are.
        loss: Its value.
        leaves: Parameters whose gradient is NaN, infinite, or so large that its squared norm is.
    """

    step: int
    kind: str
    loss: float
    leaves: tuple[str, ...]

    @staticmethod
    def of(step: int, metrics: Mapping[str, Any], gradient_leaves: Sequence[str]) -> Verdict:
        """Reads what a step gave for a bad batch."""
        loss, grad_sq = (np.asarray(x) for x in jax.device_get((metrics["loss"], metrics["grad_sq"])))
        bad = tuple(name for name, sq in zip(gradient_leaves, grad_sq, strict=True) if not np.isfinite(sq))
        return Verdict(step, "grad" if np.isfinite(loss) else "loss", float(loss), bad)

    def as_json(self) -> dict[str, Any]:
        """JSON, which has no NaN: the loss as Python's exact hexadecimal text, "nan" or "inf"."""
        return {**dataclasses.asdict(self), "loss": self.loss.hex(), "leaves": list(self.leaves)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Verdict:
        """What `as_json` made."""
        return Verdict(value["step"], value["kind"], float.fromhex(value["loss"]), tuple(value["leaves"]))

    def same(self, other: Verdict) -> bool:
        """Equal to the last bit, where NaN equals NaN."""
        return self.as_json() == other.as_json()


@dataclass(frozen=True)
class Capsule:
    """A capsule whose digests were checked.

    Attributes:
        path: Its folder.
        verdict: What was bad.
        batch: The exact batch.
        ids: Of its records, one a row.
        context: What the run put in: dataset, parameters, seeds, ...
        versions: Of Python, libraries and device that made it.
        described: Shape, dtype and digest of each array of the state.
        arrays: The state on the host; see `carry`.
    """

    path: Path
    verdict: Verdict
    batch: Columns
    ids: list[Any]
    context: dict[str, Any]
    versions: dict[str, str]
    described: leaves.Description
    arrays: dict[str, np.ndarray]

    def carry(self, step: TrainStep) -> Carry:
        """A new carry, in its place on the device, as it was before the bad batch.

        Raises:
            CheckpointMismatch: The step is of another model or optimizer.
        """
        abstract = step.abstract_carry()
        if different := leaves.differences(self.described, abstract):
            raise CheckpointMismatch(
                "the capsule is of another model or optimizer", file=self.path, got="; ".join(different[:8]),
                cure="build the step from the capsule's context",
            )  # fmt: skip
        return leaves.from_tree(leaves.to_tree(self.arrays), self.described, abstract)


def write_capsule(
    root: Path,
    step: TrainStep,
    carry: Carry,
    batch: Batch,
    ids: Sequence[Any],
    verdict: Verdict,
    context: Mapping[str, Any],
) -> Path:
    """Writes the folder of a bad batch below `root`.

    Args:
        root: Made if it is missing.
        step: That refused the batch.
        carry: As the latch kept it; saved with the latch open.
        batch: As it was given to the step.
        ids: One a row.
        verdict: What was bad.
        context: JSON.

    Returns:
        The capsule's folder.

    Raises:
        OSError: Of the file system.
    """
    state = leaves.to_host(dataclasses.replace(carry, tripped_at=jax.numpy.full_like(carry.tripped_at, -1)))
    columns = {name: np.array(column) for name, column in batch.items()}
    described = leaves.describe(state)
    about = {
        "format": _FORMAT, "program": step.budget.name, "verdict": verdict.as_json(), "context": dict(context),
        "ids": [_plain(x) for x in ids], "versions": versions(), "state": described,
        "batch": {name: hashlib.sha256(c.tobytes()).hexdigest() for name, c in columns.items()},
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, allow_nan=False).encode()).hexdigest()
    final = root / f"step-{verdict.step:08d}-{digest[:12]}"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f".{final.name}.{uuid.uuid4().hex[:8]}.tmp"
    folder.mkdir()
    try:
        np.savez(folder / "batch.npz", allow_pickle=False, **columns)
        np.savez(folder / "state.npz", allow_pickle=False, **{k: _native(leaf.data) for k, leaf in state.items()})
        durable.write_json(folder / "capsule.json", about)
        durable.write_json(folder / "manifest.json", {name: _entry(folder / name) for name in _FILES})
        durable.fsync_tree(folder)
        load_capsule(folder)  # what can't be read back would be no evidence
        if final.exists():
            shutil.rmtree(final)
        folder.rename(final)
        durable.fsync_dir(root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return final


def load_capsule(path: Path) -> Capsule:
    """Reads and verifies a capsule.

    Raises:
        ArtifactDamaged: A file is missing, cut or edited, or the folder is no capsule.
    """
    try:
        manifest = durable.read_json(path / "manifest.json")
        for name in _FILES:
            if (got := _entry(path / name)) != manifest.get(name):
                raise ArtifactDamaged("a capsule's file isn't as it was written", file=path / name, got=got,
                                      expected=manifest.get(name))  # fmt: skip
        about = durable.read_json(path / "capsule.json")
        if about["format"] != _FORMAT:
            raise ArtifactDamaged("a capsule of another format", file=path, got=about["format"], expected=_FORMAT)
        described = about["state"]
        with np.load(path / "batch.npz", allow_pickle=False) as file:
            batch = {name: file[name] for name in file.files}
        with np.load(path / "state.npz", allow_pickle=False) as file:
            arrays = {name: file[name].view(jax.numpy.dtype(leaf["stored"])) for name, leaf in described.items()}
        return Capsule(
            path, Verdict.from_json(about["verdict"]), batch, about["ids"], about["context"], about["versions"],
            described, arrays,
        )  # fmt: skip
    except (FileNotFoundError, NotADirectoryError, KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ArtifactDamaged("this folder isn't a whole capsule", file=path, got=repr(error)) from error


def _entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path)}


def _native(data: np.ndarray) -> np.ndarray:
    # npz knows NumPy's own dtypes only and would return bfloat16 as raw bytes; the description says what it was.
    return data if data.dtype.isbuiltin == 1 else data.view(f"u{data.dtype.itemsize}")


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def versions() -> dict[str, str]:
    """Of what decides the numbers of a step: libraries, Python, machine and device."""
    device = jax.devices()[0]
    return {
        "python": platform.python_version(), "machine": platform.machine(), "device": device.device_kind,
        "backend": device.platform, "x64": str(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
        **{name: metadata.version(name) for name in _LIBRARIES},
    }  # fmt: skip
