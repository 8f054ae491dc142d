"""Stage `convert`: raw files become ArrayRecord shards, a split each, with the origin of every example beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import SchemaError, SplitError
from datasets.schema import Block, Columns, Dataset
from datasets.splits import ByFraction, Files, Rows, columns_of, draw, names_of, rows_of
from tasks.artifact import Artifact, Draft
from tasks.durable import write_json
from tasks.progress import bar
from tasks.records import ShardWriter
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

    splits = names_of(dataset.splits)

    def fill(draft: Draft) -> None:
        drawn = drawn_over(dataset, folder)
        origins: dict[str, list[list[Any]]] = {split: [] for split in splits}
        with contextlib.ExitStack() as stack, bar(job.stage, None, "examples") as progress:
            writers = {
                split: stack.enter_context(
                    ShardWriter(draft.folder, split, dataset.features, rows_per_record=ROWS_PER_RECORD)
                )
                for split in splits
            }
            for split, columns in split_blocks(dataset, folder, origins, drawn):
                _write(writers[split], columns, split, origins[split][-1])
                progress.advance(len(next(iter(columns.values()))))
            _check_counts(dataset, origins)
            shards = {split: writer.finish() for split, writer in writers.items()}
        write_json(draft.folder / ORIGIN, origins)
        draft.facts = {
            "splits": {
                split: {"rows": sum(shard.rows for shard in made), "shards": [asdict(shard) for shard in made]}
                for split, made in shards.items()
            },
            "rows_per_record": ROWS_PER_RECORD,
            "features": _layout(dataset),
        }

    return job.commit("records", fill)


def drawn_over(dataset: Dataset, folder: Path) -> np.ndarray | None:
    """For a split by fraction, the split of every row, from a first pass over the raw data; None for other splits.

    Raises:
        SplitError: A split gets no row.
        SchemaError: The raw data has no column to stratify by.
    """
    rule = dataset.splits
    if not isinstance(rule, ByFraction):
        return None
    rows, strata = 0, []
    for block in dataset.read(folder):
        rows += _rows(block)
        if rule.stratify:
            _check_has(block, (rule.stratify,))
            strata.append(block.columns[rule.stratify].copy())  # not the whole block that it may be a view of
    return draw(rule, rows, np.concatenate(strata) if strata else None)


def _write(writer: ShardWriter, columns: Columns, split: str, run: list[Any]) -> None:
    try:
        writer.write(columns)
    except SchemaError as error:
        file, row, count = run  # the rows at hand are the last of the run
        place = {"split": split, "file": file, "row": row + count - len(next(iter(columns.values())))}
        raise SchemaError(error.what, cure=error.cure, **{**error.facts, **place}) from error


def split_blocks(
    dataset: Dataset, folder: Path, origins: dict[str, list[list[Any]]], drawn: np.ndarray | None = None
) -> Iterator[tuple[str, Columns]]:
    """The rows of every split, in the order of the raw files, which are read once.

    Args:
        dataset: Whose reader reads.
        folder: Of the raw files.
        origins: Gets, for each split, [file, first row, count] of each run of consecutive rows.
        drawn: What `drawn_over` gave.

    Yields:
        Name of a split and columns of some of its rows.

    Raises:
        SchemaError: Columns of a block differ in length, or one that decides the split is missing.
    """
    position = 0
    for block in dataset.read(folder):
        rows = _rows(block)
        _check_has(block, columns_of(dataset.splits))
        inside = rows_of(dataset.splits, block.columns, block.file, position, rows, drawn)
        for split, at in inside.items():
            if at.size:
                _note_origin(origins[split], block.file, block.row, at)
                yield split, {name: _taken(column, at) for name, column in block.columns.items()}
        position += rows


def _taken(column: np.ndarray, at: np.ndarray) -> np.ndarray:
    if at[-1] - at[0] + 1 == len(at):
        return column[at[0] : at[-1] + 1]
    return column[at]


def _check_has(block: Block, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in block.columns:
            raise SchemaError(
                f"column {name!r}, which decides the split, isn't among those that were read", file=block.file,
                field=name, got=", ".join(block.columns),
            )  # fmt: skip


def _rows(block: Block) -> int:
    lengths = {name: len(column) for name, column in block.columns.items()}
    if len(set(lengths.values())) != 1:
        raise SchemaError("columns of one block have different lengths", file=block.file, row=block.row, got=lengths)
    return next(iter(lengths.values()))


def _note_origin(origin: list[list[Any]], file: str, first: int, at: np.ndarray) -> None:
    """Adds the rows `first + at` of a file to the runs; `at` is ascending."""
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    starts, stops = np.append(0, breaks), np.append(breaks, len(at))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        row, count = first + int(at[start]), stop - start
        if origin and origin[-1][0] == file and origin[-1][1] + origin[-1][2] == row:
            origin[-1][2] += count
        else:
            origin.append([file, row, count])


def origin_of(origin: list[list[Any]], example_id: int) -> tuple[str, int]:
    """Raw file and row of an example, from the split's list in `origin.json`."""
    before = 0
    for file, row, count in origin:
        if before <= example_id < before + count:
            return file, row + example_id - before
        before += count
    raise IndexError(f"example {example_id} of {before}")


def _check_counts(dataset: Dataset, origins: dict[str, list[list[Any]]]) -> None:
    for split, runs in origins.items():
        rows = sum(count for _, _, count in runs)
        rule = dataset.splits[split] if isinstance(dataset.splits, Mapping) else dataset.splits
        if rows == 0:
            raise SplitError(f"split {split!r} is empty", got="0 rows", expected=rule)
        expected = rule.stop - rule.start if isinstance(rule, Rows) else None
        expected = rule.count if isinstance(rule, Files) else expected
        if expected is not None and rows != expected:
            raise SplitError(f"split {split!r} has another number of rows than stated", got=rows, expected=expected)


def _layout(dataset: Dataset) -> dict[str, Any]:
    """What of the features decides the bytes: bounds and class names don't."""
    return {
        name: {"dtype": np.dtype(feature.dtype).str, "shape": list(feature.shape)}
        for name, feature in dataset.features.items()
    }


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {"read": dataset.read, "splits": dataset.splits, "features": _layout(dataset)}


convert = Stage("convert", convert_raw, _reads, libraries=("array-record", "numpy", "pyarrow", "pillow"))
