"""Stage `validate`: every record of every shard is read and held against the dataset's features before it is trusted.

Shapes and dtypes are Chex contracts, with plain comparisons of our own behind them; values (label range, bounds,
finiteness) are checked by us alone, so neither `python -O` nor `chex.disable_asserts()` lets a bad record pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import SchemaError, SplitError
from datasets.schema import Columns, Dataset, Feature
from datasets.splits import names_of
from tasks.artifact import Artifact, Draft
from tasks.dealing import ORIGIN, origin_of
from tasks.durable import read_json, write_json
from tasks.progress import bar
from tasks.quarantine import bad_values
from tasks.records import Shard, Shards
from tasks.stage import Job, Run, Stage

REPORT = "report.json"
MOST_EXAMPLES = 5


def validate_records(job: Job, records: Artifact) -> Artifact:
    """A report on every split, whose facts name the digest of the records that it vouches for.

    Raises:
        SchemaError: A record doesn't fit; it is named by split, record, raw file and row.
        SplitError: A split has no example of a class that another split has.
        ArtifactDamaged: A shard isn't what its manifest says.
    """
    dataset, folder = job.request.dataset, job.store.path(records)
    job.store.verify(records)  # what is vouched for are the bytes of this digest, not whatever can be decoded
    facts = job.store.facts(records)
    origins = read_json(folder / ORIGIN)

    def fill(draft: Draft) -> None:
        report: dict[str, Any] = {}
        with bar(job.stage, sum(split["rows"] for split in facts["splits"].values()), "examples") as progress:
            for split in names_of(dataset.splits):
                summary = SplitSummary(split, dataset.features, origins[split])
                for columns in open_split(folder, facts, split, dataset.features).blocks():
                    summary.add(columns)
                    progress.advance(summary.block_rows)
                report[split] = summary.to_json()
        _check_classes(dataset, report)
        write_json(draft.folder / REPORT, report)
        draft.facts = {"records": records.digest, "examples": {name: part["examples"] for name, part in report.items()}}

    return job.commit("report", fill)


def open_split(folder: Path, facts: Mapping[str, Any], split: str, features: Mapping[str, Feature]) -> Shards:
    """The shards of a split, from the facts of a records artifact."""
    shards = [Shard(**shard) for shard in facts["splits"][split]["shards"]]
    return Shards(folder, shards, features, facts["rows_per_record"])


class SplitSummary:
    """Checks the blocks of one split and sums them up.

    Args:
        split: Its name.
        features: What its columns must be.
        origin: Runs of raw rows, see `tasks.convert`.
    """

    def __init__(self, split: str, features: Mapping[str, Feature], origin: list[list[Any]]) -> None:
        self.split, self.features, self.origin = split, features, origin
        self.rows = self.block_rows = 0
        self._sums = {name: _Moments() for name in features}
        self._counts = {name: np.zeros(len(f.classes), np.int64) for name, f in features.items() if f.classes}

    def add(self, columns: Columns) -> None:
        """Checks one block and adds it to the summary.

        Raises:
            SchemaError: Its columns, shapes, dtypes or values don't fit the features.
        """
        if columns.keys() != self.features.keys():
            raise SchemaError(
                "columns differ", split=self.split, got=", ".join(columns), expected=", ".join(self.features)
            )
        self.block_rows = len(next(iter(columns.values())))
        for name, feature in self.features.items():
            self._check_layout(name, columns[name], feature)
            self._check_values(name, columns[name], feature)
            self._sums[name].add(columns[name])
            if feature.classes:
                self._counts[name] += np.bincount(
                    columns[name].reshape(-1).astype(np.int64), minlength=len(feature.classes)
                )
        self.rows += self.block_rows

    def _check_layout(self, name: str, column: np.ndarray, feature: Feature) -> None:
        import chex

        expected = (self.block_rows, *feature.shape)
        try:
            chex.assert_shape(column, expected)
            chex.assert_type(column, np.dtype(feature.dtype))
        except AssertionError as error:
            raise self._layout_error(name, column, feature) from error
        if column.shape != expected or column.dtype != np.dtype(feature.dtype):  # Chex can be switched off
            raise self._layout_error(name, column, feature)

    def _layout_error(self, name: str, column: np.ndarray, feature: Feature) -> SchemaError:
        return SchemaError(
            "a column doesn't have the stated layout", split=self.split, field=name,
            got=f"{column.dtype}{list(column.shape)}", expected=f"{feature.dtype}{[self.block_rows, *feature.shape]}",
        )  # fmt: skip

    def _check_values(self, name: str, column: np.ndarray, feature: Feature) -> None:
        bad = bad_values(column, feature)
        if bad.any():
            rows = np.flatnonzero(bad.reshape(len(column), -1).any(axis=1))
            raise self._value_error(name, column, feature, bad, rows)

    def _value_error(
        self, name: str, column: np.ndarray, feature: Feature, bad: np.ndarray, rows: np.ndarray
    ) -> SchemaError:
        low, high = feature.bounds
        first = int(rows[0])
        record = self.rows + first
        file, row = origin_of(self.origin, record)
        starts_at_1 = bool(feature.classes) and column.min() == 1 and column.max() == len(feature.classes)
        return SchemaError(
            "a value is out of range or not finite", split=self.split, field=name, record=record,
            file=file, row=row, got=np.asarray(column[first])[bad[first]].flat[0],
            expected=f"finite values, {'-inf' if low is None else low} to {'inf' if high is None else high}",
            values=f"{column.min()} to {column.max()}", count=f"{len(rows)} of the {len(column)} rows read together",
            cure="labels seem to start at 1: subtract 1 in the reader" if starts_at_1 else None,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Counts, least, greatest, mean and standard deviation a feature; counts a class for a label."""
        return {
            "examples": self.rows,
            "features": {name: moments.to_json() for name, moments in self._sums.items()},
            "classes": {
                name: dict(zip(self.features[name].classes, counts.tolist(), strict=True))
                for name, counts in self._counts.items()
            },
        }


class _Moments:
    """Count, least, greatest, mean and deviation over blocks (Chan, Golub, LeVeque 1983: the pairwise update)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.low, self.high = np.inf, -np.inf

    def add(self, column: np.ndarray) -> None:
        values = column.reshape(-1).astype(np.float64)
        count, mean = self.count + values.size, values.mean()
        delta = mean - self.mean
        self.squares += float(np.square(values - mean).sum() + delta**2 * self.count * values.size / count)
        self.mean += float(delta * values.size / count)
        self.count = count
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count, "min": self.low, "max": self.high, "mean": self.mean,
            "std": float(np.sqrt(self.squares / self.count)),
        }  # fmt: skip


def _check_classes(dataset: Dataset, report: dict[str, Any]) -> None:
    train = report["train"]["classes"][dataset.label]
    missing = [name for name, count in train.items() if count == 0]
    if missing:
        raise SplitError(
            "the train split has no example of a class", split="train", classes=", ".join(missing),
            cure="declare only classes that occur, or split the data another way",
        )  # fmt: skip


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {"features": dataset.features, "label": dataset.label, "splits": sorted(names_of(dataset.splits))}


validate = Stage("validate", validate_records, _reads, libraries=("numpy", "array-record", "chex"))
