"""Predictions of a promoted model for raw files: the training's own reader and transforms, in bounded memory.

A run that was killed goes on after its last whole part. The raw files are read from their start then, because most
formats can only be read so; nothing is predicted twice.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import datasets
from datasets.errors import NonFiniteError, ParameterError, UnknownNameError
from datasets.schema import Block, Columns, Dataset, check_int
from tasks.artifact import Store
from tasks.canonical import canonical
from tasks.fingerprint import Sources
from tasks.fingerprint_memory import RememberedSources
from tasks.lock import Lock
from tasks.prediction_parts import Parts, table_of
from tasks.progress import LOG, Bar, bar
from tasks.quarantine import QUARANTINE
from tasks.raw_rows import RawRows, stamps
from tasks.request import store_root
from tasks.trained import Trained, check_inputs, load_version

PART_BYTES, MOST_PART_ROWS = 64 << 20, 1 << 17
BATCH_NUMBERS, MOST_BATCH = 1 << 18, 8192
FORMAT = 1


def predict_raw(
    dataset: str, raw: str | os.PathLike[str], out: str | os.PathLike[str], version: str | None = None, *,
    store: str | os.PathLike[str] | None = None, part_rows: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Writes a Parquet file with a row for each sound raw row, and gives a report as JSON.

    Columns: file and row (the raw row's place), prediction (name of the class, or the number, float32), p_<class>
    float32 for each class if there are any, and model_version. Rows that the dataset's policy sets aside are in
    `<out>.quarantine.jsonl`, with reasons.

    Args:
        dataset: Name of a file under `datasets/`.
        raw: A raw file, or a folder of them, in the dataset's format; the label's column may be missing.
        out: The Parquet file; it appears when all rows are done.
        version: Of the model, such as "v2"; the champion if None.
        store: Folder of the artifacts; see `store_root`.
        part_rows: Rows that are done at a time.

    Raises:
        UnknownNameError: No such dataset or version.
        StoreError: No model was promoted yet.
        ArtifactDamaged, CheckpointMismatch: The model was damaged, or isn't what today's files describe.
        FetchError, DataFormatError, SchemaError: The raw rows can't be read, as in training.
        NonFiniteError: The model gives NaN or an infinity for a row; it is named.
    """
    from tasks.compiled import use_compilation_cache

    if dataset not in datasets.names():
        raise UnknownNameError.among("dataset", dataset, datasets.names())
    if part_rows is not None:
        check_int("part_rows", part_rows, 1)
    known, root = datasets.load(dataset), store_root(store)
    source, target = Path(raw).absolute(), Path(out).absolute()
    if not target.parent.is_dir() or target.is_dir():
        raise ParameterError("the predictions can't be put there", parameter="out", got=target, expected="a new file")
    began = time.perf_counter()
    use_compilation_cache(root)
    trained = load_version(Store(root), dataset, version)
    check_inputs(trained, known)
    size = part_rows or rows_of_a_part(known)
    about = identity(dataset, known, trained, source, size, RememberedSources(root))
    (root / "locks").mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
    with Lock(root / "locks" / f"predict-{name}.lock"):
        parts = Parts(target, about)
        resumed = parts.done * size
        rows = RawRows(known, source, parts.folder)
        with bar("predict", None, "rows") as progress:
            _write_all(parts, rows, trained, size, progress)
        written = parts.join()
        aside = target.with_name(f"{target.name}.{QUARANTINE}")
        aside.unlink(missing_ok=True)
        if rows.quarantined:
            (parts.folder / QUARANTINE).replace(aside)
            LOG.warning("%d of %d rows are set aside; see %s", rows.quarantined, rows.rows, aside)
        parts.remove()
    seconds = time.perf_counter() - began
    return {
        "dataset": dataset, "version": trained.version, "out": str(target), "rows": written, "raw_rows": rows.rows,
        "quarantined": rows.quarantined, "reasons": dict(rows.reasons),
        "quarantine": str(aside) if rows.quarantined else None, "resumed_from": resumed or None,
        "seconds": seconds, "rows_per_second": (written - resumed) / seconds, "bytes": target.stat().st_size,
    }  # fmt: skip


def identity(
    name: str, dataset: Dataset, trained: Trained, raw: Path, part_rows: int, sources: Sources
) -> dict[str, Any]:
    """All that decides the bytes of a part, as JSON."""
    code: set[str] = {f"{__name__}:predict_raw"}
    read = canonical([dataset.read, dataset.features, dataset.validation.on_bad], code)
    return {
        "format": FORMAT, "dataset": name, "version": trained.version, "model": trained.artifact.digest,
        "weights": trained.weights, "classes": list(trained.classes), "inputs": list(trained.takes),
        "raw": stamps(raw) if raw.exists() else [], "part_rows": part_rows, "read": read,
        "code": sources.fingerprint(code),
    }  # fmt: skip


def rows_of_a_part(dataset: Dataset) -> int:
    """Rows that take 64 MiB, or 131,072 if that is less."""
    row = sum(np.dtype(f.dtype).itemsize * int(np.prod(f.shape)) for f in dataset.features.values())
    return max(1, min(MOST_PART_ROWS, PART_BYTES // row))


def rows_of_a_batch(numbers: int) -> int:
    """A power of two, so that a batch holds up to 262,144 numbers, and 8,192 rows at most."""
    return 1 << (max(1, min(MOST_BATCH, BATCH_NUMBERS // numbers)).bit_length() - 1)


@dataclass
class Gathered:
    """Rows of one part."""

    blocks: list[Block] = field(default_factory=list)
    rows: int = 0

    def add(self, block: Block, start: int, stop: int) -> None:
        """Takes some rows of a block."""
        columns = {name: column[start:stop] for name, column in block.columns.items()}
        self.blocks.append(Block(columns, block.file, block.row + start))
        self.rows += stop - start

    def columns(self, names: tuple[str, ...]) -> Columns:
        """Some columns of all rows."""
        return {name: np.concatenate([block.columns[name] for block in self.blocks]) for name in names}

    def places(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Raw files, and for each row the index of its file and its row there."""
        files = list(dict.fromkeys(block.file for block in self.blocks))
        index = {file: i for i, file in enumerate(files)}
        lengths = [len(next(iter(block.columns.values()))) for block in self.blocks]
        codes = np.repeat([index[block.file] for block in self.blocks], lengths)
        rows = [np.arange(b.row, b.row + n, dtype=np.int64) for b, n in zip(self.blocks, lengths, strict=True)]
        return files, codes, np.concatenate(rows)


def in_parts(rows: RawRows, size: int, skip: int, progress: Bar) -> Iterator[Gathered]:
    """All rows but the first `skip`, `size` at a time."""
    gathered, seen = Gathered(), 0
    for block in rows.blocks():
        count = len(next(iter(block.columns.values())))
        start = min(max(skip - seen, 0), count)
        seen += count
        progress.move_to(seen)
        while start < count:
            stop = min(count, start + size - gathered.rows)
            gathered.add(block, start, stop)
            start = stop
            if gathered.rows == size:
                yield gathered
                gathered = Gathered()
    if gathered.rows:
        yield gathered


def _write_all(parts: Parts, rows: RawRows, trained: Trained, size: int, progress: Bar) -> None:
    from tasks.predictor import Scorer

    to_inputs, inputs, names = trained.to_inputs, trained.card["inputs"], tuple(trained.takes)
    scorer: Scorer | None = None
    about = {"dataset": trained.artifact.dataset, "version": trained.version, "weights": trained.weights,
             "classes": list(trained.classes)}  # fmt: skip
    for gathered in in_parts(rows, size, parts.done * size, progress):
        scorer = scorer or Scorer(trained.model, trained.sees, rows_of_a_batch(int(np.prod(trained.sees.shape))))
        x = to_inputs.apply(gathered.columns(names))[inputs]
        logits, probabilities = scorer.score(x)
        files, codes, places = gathered.places()
        bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
        if bad.size:
            at = int(bad[0])
            raise NonFiniteError(
                "the model gives a logit or a number that isn't finite", file=files[codes[at]], row=int(places[at]),
                count=f"{bad.size} rows of {len(x)}",
            )  # fmt: skip
        said = probabilities if trained.classes else logits[:, 0]
        parts.write(table_of(files, codes, places, said, trained.classes, about))


def show(report: dict[str, Any], console: Console) -> None:
    """Prints a report for people."""
    rate = f"{report['rows_per_second']:,.0f} rows/s, {report['bytes'] / 1e6:.1f} MB"
    console.print(
        f"{report['dataset']} {report['version']}: {report['rows']:,} rows in {report['seconds']:.1f} s, {rate}"
    )
    if report["resumed_from"]:
        console.print(f"  went on after row {report['resumed_from']:,}")
    if report["quarantined"]:
        reasons = ", ".join(f"{n} x {why}" for why, n in report["reasons"].items())
        console.print(f"  {report['quarantined']:,} rows set aside ({reasons}): {report['quarantine']}")
    console.print(f"  {report['out']}", soft_wrap=True)
