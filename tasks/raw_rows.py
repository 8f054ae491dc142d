"""Rows of raw files for prediction: the dataset's own reader, its policy for bad rows, no labels, bounded memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import FetchError, NoRecordsError, SchemaError
from datasets.readers.faults import setting_aside
from datasets.readers.unlabelled import without_label
from datasets.schema import Block, Columns, Dataset, Feature, in_batches
from tasks.dealing import row_count
from tasks.quarantine import Quarantine, bad_values, check_budget
from tasks.sources import unpack


@dataclass
class RawRows:
    """The rows of a file or a folder.

    Attributes:
        dataset: Whose reader, features and policy are used.
        path: Of the raw file or folder.
        folder: For what lies there while rows are read, and for `quarantine.jsonl`.
        rows: Read so far, those that were set aside included.
        quarantined: Set aside so far.
        reasons: How many of them for which reason.
    """

    dataset: Dataset
    path: Path
    folder: Path
    rows: int = 0
    quarantined: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """Blocks of sound rows, without the label, in the order of the reader; they name raw files as they are called.

        Raises:
            FetchError: There is no such file or folder.
            DataFormatError: A raw file isn't what its format says.
            SchemaError: A row is bad, and the dataset's policy is to fail; or more are bad than may be set aside.
        """
        dataset, sets_aside = self.dataset, self.dataset.validation.on_bad == "quarantine"
        features = {name: one for name, one in in_batches(dataset.features).items() if name != dataset.label}
        sifted = 0
        with ExitStack() as stack:
            aside = stack.enter_context(Quarantine(self.folder))
            stack.enter_context(without_label(dataset.label))
            if sets_aside:
                stack.enter_context(setting_aside(aside.put))
            for block in self._read():
                _check_layout(block, features)
                block = Block({name: block.columns[name] for name in features}, block.file, block.row)
                self.rows += row_count(block)
                if sets_aside:
                    bad = aside.sift(block, features)
                    sifted += int(np.count_nonzero(bad))
                    yield from _without(block, bad)
                else:
                    _refuse_bad(block, features)
                    yield block
                self.quarantined, self.reasons = aside.rows, dict(sorted(aside.reasons.items()))
            self.rows += aside.rows - sifted  # of what the reader left out, it gave no block
        if self.rows == 0:
            raise NoRecordsError("0 records", file=self.path)
        if self.quarantined:
            with aside.path.open(encoding="utf-8") as file:
                check_budget(dataset.validation, self.quarantined, self.rows, self.reasons, file.readline().strip())

    def _read(self) -> Iterator[Block]:
        if not self.path.exists():
            raise FetchError("there are no raw files", file=self.path, cure="--raw with a file or a folder")
        staged = self.folder / "raw"
        shutil.rmtree(staged, ignore_errors=True)
        source = self.dataset.source
        if source.unpack:
            _copy(self.path, staged)
            unpack(staged, [path.name for path in sorted(staged.iterdir())])
            yield from self.dataset.read(staged)
        elif self.path.is_file():
            # A reader that names its one file finds it whatever it is called
            name = source.files[0].name if len(source.files) == 1 and source.pattern is None else self.path.name
            staged.mkdir(parents=True)
            (staged / name).symlink_to(self.path.absolute())
            for block in self.dataset.read(staged):
                yield replace(block, file=self.path.name) if block.file == name else block
        elif self.dataset.by_file:
            for path in sorted(p for p in self.path.rglob("*") if p.is_file() and p.name[0] not in "._"):
                name = path.relative_to(self.path)
                shutil.rmtree(staged, ignore_errors=True)
                (staged / name).parent.mkdir(parents=True)
                (staged / name).symlink_to(path.absolute())
                try:
                    yield from self.dataset.read(staged)
                except FetchError:  # what the reader passes over, such as notes
                    if not path.is_file():
                        raise
        else:
            yield from self.dataset.read(self.path)
        shutil.rmtree(staged, ignore_errors=True)


def stamps(path: Path) -> list[list[Any]]:
    """Name, size and time of change of every raw file: what must be equal for a prediction to go on."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    found = [(os.path.relpath(file, path.parent), file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found]


def _copy(path: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file()):
        shutil.copyfile(file, target / file.name)


def _check_layout(block: Block, features: Mapping[str, Feature]) -> None:
    for name, feature in features.items():
        column = block.columns.get(name)
        if column is None or column.shape[1:] != feature.shape or column.dtype != np.dtype(feature.dtype):
            raise SchemaError(
                "a column doesn't have the stated layout", file=block.file, row=block.row, field=name,
                got="nothing" if column is None else f"{column.dtype}{list(column.shape[1:])}",
                expected=f"{feature.dtype}{list(feature.shape)}",
            )  # fmt: skip


def _refuse_bad(block: Block, features: Mapping[str, Feature]) -> None:
    for name, feature in features.items():
        column = block.columns[name]
        bad = bad_values(column, feature)
        if bad.any():
            row = int(np.flatnonzero(bad.reshape(len(column), -1).any(axis=1))[0])
            low, high = feature.bounds
            raise SchemaError(
                "a value is out of range or not finite", file=block.file, row=block.row + row, field=name,
                got=column[row][bad[row]].flat[0], expected=f"finite, {low} to {high}",
                cure='mend it, or Validation(on_bad="quarantine") in the dataset file',
            )  # fmt: skip


def _without(block: Block, bad: np.ndarray) -> Iterator[Block]:
    """The runs of rows that aren't bad."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], bad, [True]]).astype(np.int8)))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        columns: Columns = {name: column[start:stop] for name, column in block.columns.items()}
        yield Block(columns, block.file, block.row + start)
