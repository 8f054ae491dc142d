"""From a reader's blocks to the shards of every split, with the origin of every example; one pass, bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.readers.faults import setting_aside
from datasets.schema import Block, Columns, Dataset, Feature
from datasets.splits import ByFraction, columns_of, draw, names_of, rows_of
from tasks.durable import write_json
from tasks.quarantine import Quarantine
from tasks.record_layout import Layout
from tasks.shard_writer import ShardWriter
from tasks.turns import short_turns

ROWS_PER_RECORD = 256
ORIGIN = "origin.json"
SHARD_BYTES = 1 << 28
SHARD_RECORDS = 1024  # at most: a record is found in time linear in their number


@dataclass
class Dealt:
    """What was written; JSON but for its own frame.

    Attributes:
        shards: Of each split, as JSON.
        origins: For each split, [file, first row, count] of each run of consecutive raw rows.
        rows: Of the raw data.
        left_out: Sound rows that are in no split.
        quarantined: Rows that were set aside.
        reasons: How many of them for which reason.
        ignored: Files that the reader left out because they are no data, by what they are.
        zones: By column of times, whether they have a zone, and the first file that says so.
    """

    shards: dict[str, list[dict[str, Any]]]
    origins: dict[str, list[list[Any]]]
    rows: int = 0
    left_out: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    zones: dict[str, tuple[bool, str]] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the shards by name, which were synced and hashed when they were closed."""
        return {shard["name"]: shard["sha256"] for shards in self.shards.values() for shard in shards}


def deal(
    dataset: Dataset, blocks: Iterable[Block], folder: Path, drawn: np.ndarray | None = None, *, beside: bool = True
) -> Dealt:  # fmt: skip
    """Writes the rows of every split, in the order of the blocks, which are read once; a split may stay empty.

    Args:
        dataset: Features, splits, and what to do with bad rows.
        blocks: Of its reader.
        folder: Gets the shards, `origin.json`, and `quarantine.jsonl` if a row is set aside.
        drawn: What `drawn_over` gave.
        beside: As `ShardWriter`.

    Raises:
        SchemaError: Columns don't fit the features, or one that decides the split is missing.
    """
    names = names_of(dataset.splits)
    dealt = Dealt({name: [] for name in names}, {name: [] for name in names})
    writers: dict[str, ShardWriter] = {}
    sifted, rows_per_shard = 0, rows_of_a_shard(dataset.features)
    with ExitStack() as stack:
        stack.enter_context(short_turns())
        aside = stack.enter_context(Quarantine(folder))
        sets_aside = dataset.validation.on_bad == "quarantine"
        if sets_aside:
            stack.enter_context(setting_aside(aside.put))
        for block in blocks:
            rows = row_count(block)
            check_has(block, columns_of(dataset.splits))
            bad = aside.sift(block, dataset.features) if sets_aside else np.zeros(rows, bool)
            left = ~bad
            sifted += int(np.count_nonzero(bad))
            for split, inside in rows_of(dataset.splits, block.columns, block.file, dealt.rows, rows, drawn).items():
                at = inside[~bad[inside]] if sets_aside else inside
                if not at.size:
                    continue
                if split not in writers:
                    made = ShardWriter(
                        folder, split, dataset.features, rows_per_record=ROWS_PER_RECORD,
                        rows_per_shard=rows_per_shard, beside=beside,
                    )  # fmt: skip
                    writers[split] = stack.enter_context(made)
                note_origin(dealt.origins[split], block.file, block.row, at)
                _write(writers[split], {name: _taken(c, at) for name, c in block.columns.items()}, split, block, at)
                left[at] = False
            dealt.rows += rows
            dealt.left_out += int(np.count_nonzero(left))
        for split, writer in writers.items():
            dealt.shards[split] = [asdict(shard) for shard in writer.finish()]
    dealt.rows += aside.rows - sifted  # of what the reader left out, it gave no block
    dealt.quarantined, dealt.reasons = aside.rows, dict(sorted(aside.reasons.items()))
    write_json(folder / ORIGIN, dealt.origins)
    return dealt


def rows_of_a_shard(features: Mapping[str, Feature]) -> int:
    """Rows that make up about SHARD_BYTES: whole records, at least one and not more than a shard can hold."""
    records = SHARD_BYTES // (Layout.of(features).row_bytes * ROWS_PER_RECORD)
    return min(max(records, 1), SHARD_RECORDS) * ROWS_PER_RECORD


def drawn_over(dataset: Dataset, blocks: Iterable[Block]) -> np.ndarray | None:
    """For a split by fraction, the split of every row, from a first pass over the raw data; None for other splits.

    Raises:
        SplitError: A split gets no row.
        SchemaError: The raw data has no column to stratify by.
    """
    rule = dataset.splits
    if not isinstance(rule, ByFraction):
        return None
    rows, strata = 0, []
    with setting_aside(_nowhere) if dataset.validation.on_bad == "quarantine" else nullcontext():
        for block in blocks:
            rows += row_count(block)
            if rule.stratify:
                check_has(block, (rule.stratify,))
                strata.append(block.columns[rule.stratify].copy())  # not the whole block that it may be a view of
    return draw(rule, rows, np.concatenate(strata) if strata else None)


def _nowhere(*row: object) -> None:
    """The second pass over the raw data notes what is left out."""


def note_origin(origin: list[list[Any]], file: str, first: int, at: np.ndarray) -> None:
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


def row_count(block: Block) -> int:
    """Rows of a block.

    Raises:
        SchemaError: Its columns differ in length.
    """
    lengths = {name: len(column) for name, column in block.columns.items()}
    if len(set(lengths.values())) != 1:
        raise SchemaError("columns of one block have different lengths", file=block.file, row=block.row, got=lengths)
    return next(iter(lengths.values()))


def check_has(block: Block, names: tuple[str, ...]) -> None:
    """Raises SchemaError unless a block has these columns, which decide the split."""
    for name in names:
        if name not in block.columns:
            raise SchemaError(
                f"column {name!r}, which decides the split, isn't among those that were read", file=block.file,
                field=name, got=", ".join(block.columns),
            )  # fmt: skip


def _taken(column: np.ndarray, at: np.ndarray) -> np.ndarray:
    if at[-1] - at[0] + 1 == len(at):
        return column[at[0] : at[-1] + 1]
    return column[at]


def _write(writer: ShardWriter, columns: Columns, split: str, block: Block, at: np.ndarray) -> None:
    try:
        writer.write(columns)
    except SchemaError as error:
        place = {"split": split, "file": block.file, "row": block.row + int(at[0])}
        raise SchemaError(error.what, cure=error.cure, **{**error.facts, **place}) from error
