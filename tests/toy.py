"""A dataset of a few hundred rows in real IDX files, and the bodies of stages called on it without Prefect."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets.readers import idx
from datasets.schema import Block, Columns, Dataset, Feature, RawFile, Rows, Source, Validation
from tasks.artifact import Artifact, Draft, Store
from tasks.convert import convert_raw
from tasks.feed import plan_input
from tasks.fetch import fetch_raw
from tasks.fingerprint import Sources
from tasks.request import Request, check
from tasks.stage import Job, Stage
from tasks.training import train
from tasks.validate import validate_records
from tasks.weights import build_model, save_weights

ROOT = Path(__file__).parent.parent
SOURCES = Sources()
"""This code, parsed once for all tests: that takes half a second."""
IMAGES, LABELS = "toy-images-idx3-ubyte", "toy-labels-idx1-ubyte"
ROWS, TRAIN, CLASSES = 200, 150, ("circle", "cross", "ring")


def pictures(rows: int = ROWS, seed: int = 0) -> Columns:
    """Noisy pictures whose brightest third names the class: learnable, but not at once."""
    random = np.random.default_rng(seed)
    label = (np.arange(rows) * 7 % len(CLASSES)).astype(np.int32)
    image = random.integers(0, 120, (rows, 9, 8, 1))
    for i, kind in enumerate(label):
        image[i, kind * 3 : kind * 3 + 3] += 60
    return {"image": image.astype(np.uint8), "label": label}


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write_raw(folder: Path, columns: Columns) -> Source:
    """Puts two IDX files into a folder; gives the source that pins them."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {IMAGES: idx_bytes(columns["image"][..., 0]), LABELS: idx_bytes(columns["label"])}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return Source(tuple(RawFile(name, hashlib.sha256(c).hexdigest(), len(c)) for name, c in contents.items()))


def read_in_blocks(rows: int) -> Callable[[Path], Iterator[Block]]:
    def read(raw: Path) -> Iterator[Block]:
        yield from idx.blocks(raw, images=IMAGES, labels=LABELS, rows=rows)

    return read


def reader_of(columns: Columns, rows: int = 64, file: str = "raw") -> Callable[[Path], Iterator[Block]]:
    """A reader of rows that are in memory."""

    def read(raw: Path) -> Iterator[Block]:
        for start in range(0, len(columns["label"]), rows):
            yield Block({name: c[start : start + rows] for name, c in columns.items()}, file, start)

    return read


def dataset(source: Source | None = None, **changes: Any) -> Dataset:
    return replace(
        Dataset(
            about="Toy pictures",
            source=source or Source(()),
            read=read_in_blocks(64),
            features={"image": Feature("uint8", (9, 8, 1)), "label": Feature("int32", classes=CLASSES)},
            inputs="image",
            label="label",
            splits={"train": Rows(0, TRAIN), "test": Rows(TRAIN, ROWS)},
        ),
        **changes,
    )


def request_for(store: Path, made: Dataset, raw: Path | None = None, **parameters: Any) -> Request:
    """The checked request of a run on a dataset that is no file; `mlp` and batches of 16 unless said otherwise."""
    options: dict[str, Any] = {"model": "mlp", "epochs": 2, "batch_size": 16, "seed": 3, **parameters}
    recipe = {name: options.pop(name) for name in ("dropout", "augment") if name in options}
    request = check("mnist", store=store, **options)
    changed = replace(request.dataset.recipe, **recipe)
    return replace(request, name="toy", dataset=replace(made, recipe=changed), raw=raw)


def job(request: Request, stage: str, key: str | None = None) -> Job:
    return Job(stage, key or f"{stage}-1", {}, request, Store(request.store))


def no_raw(request: Request) -> Artifact:
    """A raw artifact without files, for readers of rows in memory."""
    return job(request, "fetch").commit("raw", lambda draft: None)


def records_of(request: Request, key: str | None = None) -> Artifact:
    raw = fetch_raw(job(request, "fetch")) if request.dataset.source.files else no_raw(request)
    return convert_raw(job(request, "convert", key), raw=raw)


def prepare(request: Request) -> dict[str, Artifact]:
    """Inputs of `fit`: records, report, plan."""
    records = records_of(request)
    report = validate_records(job(request, "validate"), records=records)
    return {"records": records, "report": report, "plan": plan_input(job(request, "feed"), records, report)}


def fitted(request: Request, inputs: Mapping[str, Artifact], key: str = "fit-1") -> tuple[Artifact, Job]:
    made = job(request, "fit", key)
    return train(made, **inputs), made


def key_parts(stage: Stage, request: Request) -> dict[str, Any]:
    """What a stage reads of a request, as its key sees it."""
    from tasks.canonical import canonical
    from tasks.stage import Run

    return canonical(stage.parameters(Run(request)), set())


def files_below(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def python(code: str, *options: str, **popen: Any) -> subprocess.Popen[str]:
    """A Python process of its own in which the project and these helpers can be imported."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", **popen.pop("env", {})}
    popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, **popen}
    return subprocess.Popen([sys.executable, *options, "-c", code], env=environment, **popen)


def run_python(code: str, *options: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    process = python(code, *options)
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def table_request(store: Path, rows: int = 60, **changes: Any) -> Request:
    """As many train as test examples, each a one-hot row, so that a model can be given its answer to each of them."""
    columns = {
        "x": np.concatenate([np.eye(rows, dtype=np.float32)] * 2),
        "label": (np.arange(2 * rows) % rows % len(CLASSES)).astype(np.int32),
    }
    options: dict[str, Any] = {
        "read": reader_of(columns), "inputs": "x", "splits": {"train": Rows(0, rows), "test": Rows(rows, 2 * rows)},
        "features": {"x": Feature("float32", (rows,)), "label": Feature("int32", classes=CLASSES)},
        "validation": Validation(leaks="warn"),
    }  # fmt: skip
    return request_for(store, dataset(**{**options, **changes}))


def weights_that_say(request: Request, answers: np.ndarray, key: str, *, strength: float = 5.0) -> Artifact:
    """Weights of an `mlp` whose answer to example i of `table_request` is the class `answers[i]`."""
    feature = request.dataset.features[request.dataset.inputs]
    model: Any = build_model("mlp", feature, len(CLASSES), dropout=0.0, seed=0)
    head = np.zeros((model.hidden.kernel[...].shape[1], len(CLASSES)), np.float32)
    head[np.arange(len(answers)), answers] = strength
    model.hidden.kernel[...] = np.eye(len(answers), len(head), dtype=np.float32)
    model.head.kernel[...] = head
    model.eval()

    def fill(draft: Draft) -> None:
        save_weights(draft.folder, model, request.dataset)
        history = [{"step": 0, "loss": 1.0}, {"step": 0, "test_loss": 1.0, "test_accuracy": 0.5}]
        (draft.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in history))
        draft.facts = {"steps": 1}

    return job(request, "fit", key).commit("weights", fill)
