"""A model as one file for any environment with JAX: from raw features to answers, no code of ours.

The file is a zip archive, so Python's own library opens it and checks its CRCs:

    about.json      classes in order, raw features with dtype and shape, version, digests, versions of the libraries
    program.bin     what `jax.export` serialises: transforms, scaling of inputs, model and weights; any batch size
    flatbuffers/    the pure Python package that JAX reads such programs with, so that JAX alone is enough

Reading it takes these lines:

    import json, sys, zipfile
    import numpy as np
    sys.path.append("fraud.model")
    import jax.export
    with zipfile.ZipFile("fraud.model") as file:
        about, program = json.loads(file.read("about.json")), bytearray(file.read("program.bin"))
    answers = jax.export.deserialize(program).call({"inputs": np.zeros((3, 12), np.float32)})

`answers` has "logits" and "probabilities", float32 [rows, classes]; or "prediction", float32 [rows], where the label is
a number. Text goes in as its UTF-8 bytes, padded with zeros.
JAX promises to read such programs for at least half a year (https://docs.jax.dev/en/latest/export/export.html).
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import time
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import datasets
from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import Feature
from tasks.artifact import Store
from tasks.durable import write_bytes
from tasks.request import store_root
from tasks.trained import Trained, load_version

ABOUT, PROGRAM = "about.json", "program.bin"
PLATFORMS = ("cpu", "cuda")
FORMAT = 1
BUNDLED = "flatbuffers"
NEVER = (1980, 1, 1, 0, 0, 0)  # the time of every member, so that equal models are equal bytes
PROBE = 256  # rows that the file is tried with before it is kept


def export_model(
    dataset: str, out: str | os.PathLike[str], version: str | None = None, *,
    store: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Writes a version of a model as one file, reads it back, tries it, and gives a report as JSON.

    Args:
        dataset: Name of a file under `datasets/`.
        out: The file.
        version: Such as "v2"; the champion if None.
        store: Folder of the artifacts; see `store_root`.

    Returns:
        out, version, bytes, load_s (from the file to a callable), first_call_s (compiling it for 256 rows), difference
        (the greatest, of logits or numbers on 256 random rows, to the program that evaluates; 0 where both run the same
        kernels).

    Raises:
        UnknownNameError: No such dataset or version.
        StoreError: No model was promoted yet.
        ArtifactDamaged, CheckpointMismatch: As `load_version`.
    """
    if dataset not in datasets.names():
        raise UnknownNameError.among("dataset", dataset, datasets.names())
    target = Path(out).absolute()
    if not target.parent.is_dir() or target.is_dir():
        raise ParameterError("the model can't be put there", parameter="out", got=target, expected="a new file")
    trained = load_version(Store(store_root(store)), dataset, version)
    write_bytes(target, archive(about(trained), program(trained)))
    return {"dataset": dataset, "version": trained.version, "out": str(target), **tried(target, trained)}


def program(trained: Trained) -> bytes:
    """The serialised function from raw features, [batch, *shape] each by name, to `Target.answers`."""
    import jax
    import jax.export
    import jax.numpy as jnp
    from flax import nnx

    from tasks.contracts import device_dtype
    from tasks.target import target_of

    target = target_of(trained.classes)
    graph, state = nnx.split(trained.model)
    weights, to_inputs, inputs = nnx.as_pure(state), trained.to_inputs, trained.card["inputs"]

    def answer(columns: dict[str, jax.Array]) -> dict[str, jax.Array]:
        # What evaluation gets as arguments is behind a barrier here, or XLA would choose other kernels for constants
        x, state = jax.lax.optimization_barrier((to_inputs.apply(columns, jnp)[inputs], weights))
        return target.answers(nnx.merge(graph, state)(x))

    (batch,) = jax.export.symbolic_shape("batch")
    columns = {
        name: jax.ShapeDtypeStruct((batch, *feature.shape), device_dtype(feature.dtype))
        for name, feature in trained.takes.items()
    }
    return bytes(jax.export.export(jax.jit(answer), platforms=PLATFORMS)(columns).serialize())


def about(trained: Trained) -> dict[str, Any]:
    """What the file says of itself."""
    gives = {name: ["rows", len(trained.classes)] for name in ("logits", "probabilities")}
    if not trained.classes:
        gives = {"prediction": ["rows"]}
    libraries = ("jax", "jaxlib", "flax", BUNDLED)
    return {
        "format": FORMAT, "dataset": trained.artifact.dataset, "version": trained.version,
        "model": trained.card["model"], "classes": list(trained.classes), "weights": trained.weights,
        "artifact": trained.artifact.digest, "platforms": list(PLATFORMS),
        "takes": {name: {key: asdict(feature)[key] for key in ("dtype", "shape", "low", "high")}
                  for name, feature in trained.takes.items()},
        "gives": gives,
        "libraries": {name: importlib.metadata.version(name) for name in libraries},
    }  # fmt: skip


def archive(facts: dict[str, Any], code: bytes) -> bytes:
    """The file's bytes; the same for the same model."""
    members = {ABOUT: json.dumps(facts, sort_keys=True, indent=1).encode(), PROGRAM: code, **_bundled()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name, NEVER), content)
    return file.getvalue()


def _bundled() -> dict[str, bytes]:
    """The source files of flatbuffers, with its metadata, which names its licence."""
    files = importlib.metadata.files(BUNDLED) or []
    kept = [file for file in files if file.suffix == ".py" or file.name == "METADATA" or "LICENSE" in file.name]
    return {file.as_posix(): Path(str(file.locate())).read_bytes() for file in sorted(kept)}


def tried(path: Path, trained: Trained) -> dict[str, Any]:
    """Size, times, and how far the file's logits, or numbers, are from those of the program that evaluates."""
    import jax
    import jax.export

    from tasks.predictor import Scorer

    random = np.random.default_rng(0)
    columns = {name: _some(feature, random) for name, feature in trained.takes.items()}
    expected, _ = Scorer(trained.model, trained.sees, PROBE).score(
        trained.to_inputs.apply(columns)[trained.card["inputs"]]
    )
    began = time.perf_counter()
    with zipfile.ZipFile(path) as file:
        call = jax.export.deserialize(bytearray(file.read(PROGRAM))).call
    loaded = time.perf_counter()
    answers = jax.block_until_ready(call(columns))
    called = time.perf_counter()
    return {
        "bytes": path.stat().st_size, "load_s": loaded - began, "first_call_s": called - loaded,
        "difference": float(np.abs(np.asarray(next(iter(answers.values()))).reshape(expected.shape) - expected).max()),
    }  # fmt: skip


def _some(feature: Feature, random: np.random.Generator) -> np.ndarray:
    """Random rows of a feature."""
    low, high = feature.bounds
    shape = (PROBE, *feature.shape)
    if np.dtype(feature.dtype).kind == "f":
        return np.clip(random.normal(size=shape), low, high).astype(feature.dtype)
    return random.integers(int(low or 0), int(100 if high is None else high) + 1, shape).astype(feature.dtype)


def show(report: dict[str, Any], console: Console) -> None:
    """Prints a report for people."""
    console.print(
        f"{report['dataset']} {report['version']}: {report['bytes'] / 1e6:.2f} MB, loaded in {report['load_s']:.3f} s, "
        f"first answer after {report['first_call_s']:.2f} s, answers differ by {report['difference']:.2g} at most"
    )
    console.print(f"  {report['out']}", soft_wrap=True)
