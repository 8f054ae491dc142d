"""Weights that a training starts from instead of random ones: the champion's, another model's, a checkpoint's.

All of them, or those whose path fits a pattern (`first.*,second.*` for a backbone without its head); the rest starts
fresh. What is loaded must fit path by path in shape and dtype: nothing is cast, cut or left out without a word.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import CheckpointError, CheckpointMismatch, ParameterError, StoreError
from tasks.artifact import Store
from tasks.registry import Registry

CHAMPION = "champion"
WEIGHTS = "weights.safetensors"
MODEL_STATE = "state/model/"


@dataclass(frozen=True)
class WarmStart:
    """Where a training starts.

    Attributes:
        path: Of a weights file or of a checkpoint's folder.
        only: Patterns of paths as the shell has them; empty for all.
        digest: SHA-256 over the arrays that are taken, so that equal weights are one start wherever they lie.
    """

    path: Path
    only: tuple[str, ...]
    digest: str


def find(root: Path, dataset: str, source: str, only: str | None) -> WarmStart:
    """The start that was asked for, its arrays read and verified.

    Args:
        root: Of the store.
        dataset: Whose champion is meant.
        source: "champion", or a path: a weights file, a folder with one, or a checkpoint such as `.../<key>/420`.
        only: Patterns, separated by commas; None for all arrays.

    Raises:
        ParameterError: There is no champion, there are no weights at the path, or a pattern fits nothing.
        ArtifactDamaged, CheckpointCorrupt: They were damaged on disk.
        CheckpointError: The file holds no weights.
    """
    path = _champion(root, dataset) if source == CHAMPION else Path.cwd() / source
    if (path / WEIGHTS).is_file():
        path /= WEIGHTS
    elif not path.is_file() and not (path / "state").is_dir():
        raise ParameterError(
            "there are no weights to start from", parameter="warm_start", got=path,
            expected=f"{CHAMPION!r}, a folder with {WEIGHTS}, such a file, or a checkpoint's folder",
        )  # fmt: skip
    patterns = tuple(part.strip() for part in only.split(",")) if only is not None else ()
    return WarmStart(path, patterns, _digest(_picked(_arrays(path), patterns)))


def _champion(root: Path, dataset: str) -> Path:
    store = Store(root)
    champion = Registry(store, dataset).champion()
    if champion is None:
        raise ParameterError(
            "there is no champion to start from", parameter="warm_start", got=dataset,
            cure="train without --warm-start first, or give a folder of weights",
        )  # fmt: skip
    return store.path(champion.model)


def load(start: WarmStart, model: Any) -> dict[str, Any]:  # noqa: ANN401 - Flax loads late
    """Puts the arrays into a fresh model.

    Returns:
        JSON: from where, and the paths that were loaded, that start fresh, and that were left in the file.

    Raises:
        CheckpointMismatch: An array differs in shape or dtype or the model has no such path, or, without patterns,
            lacks one; each is named and nothing is loaded.
        StoreError: The weights aren't those that were there when the run began.
    """
    from tasks.weights import describe, learned, put

    stored, fresh = _arrays(start.path), learned(model)
    picked = _picked(stored, start.only)
    if _digest(picked) != start.digest:
        raise StoreError(
            "the weights to start from changed during the run", file=start.path, cure="run the same command again"
        )
    differences = [
        f"{path}: stored {describe(picked.get(path))}, wanted {describe(fresh.get(path))}"
        for path in sorted({*picked, *(() if start.only else fresh)})
        if describe(picked.get(path)) != describe(fresh.get(path))
    ]
    if differences:
        raise CheckpointMismatch(
            "the weights to start from don't fit the model; nothing was loaded", file=start.path,
            differences="\n    ".join(["", *differences]),
            cure="--warm-start-only with patterns of the paths that fit, such as 'first.*,second.*'",
        )  # fmt: skip
    put(model, {**fresh, **picked})
    return {
        "from": str(start.path),
        "sha256": start.digest,
        "loaded": sorted(picked),
        "fresh": sorted({*fresh} - {*picked}),
        "left": sorted({*stored} - {*picked}),
    }


def said(report: dict[str, Any]) -> str:
    """A report of `load` in one line."""
    parts = {"loaded": report["loaded"], "fresh": report["fresh"], "not taken": report["left"]}
    return "; ".join(f"{what}: {', '.join(paths) or 'nothing'}" for what, paths in parts.items())


def _picked(arrays: dict[str, np.ndarray], only: tuple[str, ...]) -> dict[str, np.ndarray]:
    for pattern in only:
        if not any(fnmatchcase(path, pattern) for path in arrays):
            raise ParameterError(
                "a pattern fits none of the weights to start from", parameter="warm_start_only", got=pattern,
                known=", ".join(sorted(arrays)),
            )  # fmt: skip
    fits = {path: value for path, value in arrays.items() if any(fnmatchcase(path, pattern) for pattern in only)}
    return fits if only else arrays


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        from tasks.snapshot import read_arrays

        model = {name.removeprefix(MODEL_STATE): value for name, value in read_arrays(path, MODEL_STATE).items()}
        return {name.replace("/", "."): value for name, value in model.items() if "/rngs/" not in f"/{name}"}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    _verify_artifact(path)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError("the weights to start from can't be read", file=path, got=error) from error


def _verify_artifact(path: Path) -> None:
    """Where a manifest of ours lies beside the file, it says what the file's bytes must be."""
    from datasets.errors import ArtifactDamaged
    from tasks.durable import read_json, sha256_file

    manifest = path.with_name("manifest.json")
    if manifest.is_file():
        try:
            expected = read_json(manifest)["files"][path.name]["sha256"]
        except (KeyError, TypeError) as error:
            raise ArtifactDamaged("the manifest beside the weights to start from is damaged", file=manifest) from error
        if (got := sha256_file(path)) != expected:
            raise ArtifactDamaged("the weights to start from were edited", file=path, expected=expected, got=got)


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for path, value in sorted(arrays.items()):
        digest.update(f"{path} {value.dtype.str} {list(value.shape)}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()
