"""Predictions on disk: parts of a fixed number of rows, each written once and whole, joined at the end.

    scores.parquet.parts/identity.json         what is predicted from what, by which model
    scores.parquet.parts/part-00003.parquet    rows 3 * n ... 4 * n - 1
    scores.parquet                             all of them: it appears by rename

A kill leaves whole parts; the same command goes on after them. Parts of anything else are removed, never mixed in.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets.errors import ArtifactDamaged
from tasks.durable import fsync_dir, read_json, write_json

IDENTITY = "identity.json"
FILE, ROW, PREDICTION, VERSION = "file", "row", "prediction", "model_version"


def column_of(name: str) -> str:
    """Column that holds the probability of a class."""
    return f"p_{name}"


class Parts:
    """The parts of one file of predictions.

    Args:
        out: The file that they will be.
        identity: JSON; parts that were made under another one are removed.

    Attributes:
        folder: Where they are until they are joined.
        done: How many are there.
    """

    def __init__(self, out: Path, identity: dict[str, Any]) -> None:
        self.out, self.folder = out, out.with_name(f"{out.name}.parts")
        if not self._is_of(identity):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            write_json(self.folder / IDENTITY, identity)
        self.done = 0
        while self._path(self.done).exists():
            self.done += 1

    def _is_of(self, identity: dict[str, Any]) -> bool:
        try:
            return read_json(self.folder / IDENTITY) == identity
        except (OSError, ArtifactDamaged):
            return False

    def _path(self, part: int) -> Path:
        return self.folder / f"part-{part:05d}.parquet"

    def write(self, table: pa.Table) -> None:
        """Adds the next part, whole or not at all."""
        temporary = self.folder / ".part.tmp"
        with temporary.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path(self.done))
        fsync_dir(self.folder)
        self.done += 1

    def join(self) -> int:
        """Makes the file of all parts, one in memory at a time; gives its rows."""
        temporary = self.folder / ".joined.tmp"
        rows = 0
        with temporary.open("wb") as file:
            writer: pq.ParquetWriter | None = None
            for part in range(self.done):
                table = pq.read_table(self._path(part), memory_map=False)
                writer = writer or pq.ParquetWriter(file, table.schema)
                writer.write_table(table)
                rows += table.num_rows
            if writer is not None:
                writer.close()
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.out)
        fsync_dir(self.out.parent)
        return rows

    def remove(self) -> None:
        """Removes the parts, which are joined."""
        shutil.rmtree(self.folder)


def table_of(
    files: list[str], codes: np.ndarray, rows: np.ndarray, probabilities: np.ndarray, classes: tuple[str, ...],
    about: dict[str, Any],
) -> pa.Table:  # fmt: skip
    """Predictions as a table.

    Args:
        files: Names of raw files.
        codes: int32 [N], the raw file of each row.
        rows: int64 [N], its row in that file, counted from 0.
        probabilities: float32 [N, classes]; float32 [N] if it is a number that is predicted.
        classes: Their names; the prediction is the most probable one, the first at a tie. None for a number.
        about: Has "version"; kept in the file's metadata under the key "gristmill".
    """

    def named(indices: np.ndarray, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names, pa.string()))

    said = named(probabilities.argmax(axis=1), list(classes)) if classes else pa.array(probabilities)
    columns = {
        FILE: named(codes, files), ROW: pa.array(rows, pa.int64()), PREDICTION: said,
        **{column_of(name): pa.array(probabilities[:, i]) for i, name in enumerate(classes)},
        VERSION: named(np.zeros(len(rows), np.int32), [about["version"]]),
    }  # fmt: skip
    return pa.table(columns).replace_schema_metadata({"gristmill": json.dumps(about, sort_keys=True)})
