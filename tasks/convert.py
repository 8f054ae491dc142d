"""Stage `convert`: raw files become ArrayRecord shards, a split each, with the origin of every example beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import SchemaError, SplitError
from datasets.schema import Block, Columns, Dataset, Files, Rows
from tasks.artifact import Artifact, Draft
from tasks.durable import write_json
from tasks.progress import Bar, bar
from tasks.records import Shard, write_shards
from tasks.stage import Job, Run, Stage

ROWS_PER_RECORD = 256
ORIGIN = "origin.json"


def convert_raw(job: Job, raw: Artifact) -> Artifact:
    """Shards of every split and, in `origin.json`, the runs of raw rows that its examples came from.

    Raises:
        DataFormatError: A raw file isn't what its format says.
        SchemaError: Columns don't fit the features.
        SplitError: A split is empty, or lies outside of the data.
    """
    dataset, folder = job.request.dataset, job.store.path(raw)

    def fill(draft: Draft) -> None:
        splits, origins = {}, {}
        with bar(job.stage, None, "examples") as progress:
            for name in dataset.splits:
                origins[name] = []
                blocks = split_blocks(dataset, name, folder, origins[name], progress)
                shards = write_shards(draft.folder, name, blocks, dataset.features, rows_per_record=ROWS_PER_RECORD)
                splits[name] = {"rows": sum(s.rows for s in shards), "shards": [_shard_json(s) for s in shards]}
                _check_count(name, dataset.splits[name], splits[name]["rows"])
        write_json(draft.folder / ORIGIN, origins)
        draft.facts = {"splits": splits, "rows_per_record": ROWS_PER_RECORD, "features": _layout(dataset)}

    return job.commit("records", fill)


def split_blocks(
    dataset: Dataset, split: str, folder: Path, origin: list[list[Any]], progress: Bar | None = None
) -> Iterator[Columns]:
    """The rows of one split, in the order of the raw files.

    Args:
        dataset: Whose reader reads.
        split: Name of the split.
        folder: Of the raw files.
        origin: Gets [file, first row, count] for each run of consecutive rows.
        progress: Counts examples.
    """
    rule, position = dataset.splits[split], 0
    for block in dataset.read(folder):
        rows = _rows(block)
        start, stop = _overlap(rule, block.file, position, rows)
        position += rows
        if start >= stop:
            continue
        _note_origin(origin, block.file, block.row + start, stop - start)
        if progress is not None:
            progress.advance(stop - start)
        yield {name: column[start:stop] for name, column in block.columns.items()}
    if isinstance(rule, Rows) and position < rule.stop:
        raise SplitError(
            f"split {split!r} lies outside of the data", got=f"{position} rows", expected=f"at least {rule.stop}"
        )


def _overlap(rule: Rows | Files, file: str, position: int, rows: int) -> tuple[int, int]:
    if isinstance(rule, Files):
        return (0, rows) if file.startswith(rule.prefix) else (0, 0)
    return max(rule.start - position, 0), min(rule.stop - position, rows)


def _rows(block: Block) -> int:
    lengths = {name: len(column) for name, column in block.columns.items()}
    if len(set(lengths.values())) != 1:
        raise SchemaError("columns of one block have different lengths", file=block.file, row=block.row, got=lengths)
    return next(iter(lengths.values()))


def _note_origin(origin: list[list[Any]], file: str, row: int, count: int) -> None:
    if origin and origin[-1][0] == file and origin[-1][1] + origin[-1][2] == row:
        origin[-1][2] += count
    else:
        origin.append([file, row, count])


def origin_of(origin: list[list[Any]], example_id: int) -> tuple[str, int]:
    """Raw file and row of an example, from the split's list in `origin.json`."""
    for file, row, count in origin:
        if example_id < count:
            return file, row + example_id
        example_id -= count
    raise IndexError(example_id)


def _check_count(split: str, rule: Rows | Files, rows: int) -> None:
    expected = rule.stop - rule.start if isinstance(rule, Rows) else rule.count
    if rows == 0:
        raise SplitError(f"split {split!r} is empty", got="0 rows", expected=rule)
    if expected is not None and rows != expected:
        raise SplitError(f"split {split!r} has another number of rows", got=rows, expected=expected)


def _layout(dataset: Dataset) -> dict[str, Any]:
    """What of the features decides the bytes: bounds and class names don't."""
    return {
        name: {"dtype": np.dtype(feature.dtype).str, "shape": list(feature.shape)}
        for name, feature in dataset.features.items()
    }


def _shard_json(shard: Shard) -> dict[str, Any]:
    return {"name": shard.name, "rows": shard.rows, "sha256": shard.sha256, "bytes": shard.bytes}


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {"read": dataset.read, "splits": dataset.splits, "features": _layout(dataset)}


convert = Stage("convert", convert_raw, _reads, libraries=("array-record", "numpy", "pyarrow", "pillow"))
