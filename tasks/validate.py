"""Stage `validate`: every record of every shard is read and held against the dataset's features before it is trusted.

Shapes and dtypes are Chex contracts, with plain comparisons of our own behind them; values (label range, bounds,
finiteness) are checked by us alone, so neither `python -O` nor `chex.disable_asserts()` lets a bad record pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.schema import Columns, Feature
from datasets.splits import columns_of, names_of
from tasks.artifact import Artifact, Draft
from tasks.dealing import ORIGIN, origin_of
from tasks.drift import baseline, distances, layout_of
from tasks.duplicates import Contents, fingerprints
from tasks.durable import read_json, write_json
from tasks.findings import findings, settle
from tasks.progress import bar
from tasks.quarantine import bad_values
from tasks.records import Shard, Shards
from tasks.report import page
from tasks.stage import Job, Run, Stage
from tasks.statistics import FeatureStatistics

REPORT, PAGE = "report.json", "report.md"


def validate_records(job: Job, records: Artifact) -> Artifact:
    """A report on every split, whose facts name the digest of the records that it vouches for.

    Raises:
        SchemaError: A record doesn't fit (it is named by split, record, raw file and row), labels conflict, inputs
            repeat or the data drifted, where the dataset file doesn't say that this is only said.
        SplitError: The train split has no example of a class, or the same inputs are in two splits.
        ArtifactDamaged: A shard isn't what its manifest says.
    """
    dataset, folder = job.request.dataset, job.store.path(records)
    job.store.verify(records)  # what is vouched for are the bytes of this digest, not whatever can be decoded
    facts = job.store.facts(records)
    origins = read_json(folder / ORIGIN)
    older = baseline(job.store, job.request.name, records.digest)
    if older is not None:
        job.store.touch(older)  # it is needed as long as its model is in use

    def fill(draft: Draft) -> None:
        summaries, contents = {}, Contents()
        with bar(job.stage, sum(split["rows"] for split in facts["splits"].values()), "examples") as progress:
            for split in names_of(dataset.splits):
                summaries[split] = summary = SplitSummary(split, dataset.features, origins[split])
                for columns in open_split(folder, facts, split, dataset.features).blocks():
                    summary.add(columns)
                    contents.add(split, columns[dataset.inputs], _labels(columns[dataset.label]))
                    progress.advance(summary.block_rows)
        report: dict[str, Any] = {
            "splits": {name: summary.to_json() for name, summary in summaries.items()},
            "layout": layout_of(dataset),
            "conversion": {name: facts[name] for name in ("raw_rows", "left_out", "quarantined", "reasons")},
            "duplicates": _with_places(contents.duplicates(), origins),
            "drift": _drift(job, older, summaries["train"]),
        }
        report["findings"] = findings(dataset, report)
        settle(report["findings"])
        write_json(draft.folder / REPORT, report)
        (draft.folder / PAGE).write_text(page(job.request.name, report), encoding="utf-8")
        duplicates = {name: report["duplicates"][name] for name in ("within", "across", "conflicting")}
        draft.facts = {
            "records": records.digest,
            "examples": {name: part["examples"] for name, part in report["splits"].items()},
            "classes": list(dataset.features[dataset.label].classes),
            "duplicates": duplicates, "quarantined": facts["quarantined"], "warnings": len(report["findings"]),
        }  # fmt: skip
        job.notes["findings"] = [finding["what"] for finding in report["findings"]]

    return job.commit("report", fill)


def _labels(column: np.ndarray) -> np.ndarray:
    return column if column.ndim == 1 else fingerprints(column)[:, 0].view(np.int64)


def _drift(job: Job, older: Artifact | None, train: SplitSummary) -> dict[str, Any]:
    if older is None:
        return {"against": None, "features": {}}
    old = read_json(job.store.path(older) / REPORT)
    against = {"report": older.digest, "records": job.store.facts(older)["records"]}
    return {"against": against, "features": distances(job.request.dataset, old, train.statistics)}


def _with_places(duplicates: dict[str, Any], origins: dict[str, Any]) -> dict[str, Any]:
    """Duplicates whose examples name raw files and rows too."""
    examples = []
    for one, record, other, again, differ in duplicates.pop("pairs"):
        places = [
            {"split": split, "record": at, **dict(zip(("file", "row"), origin_of(origins[split], at), strict=True))}
            for split, at in ((one, record), (other, again))
        ]
        examples.append({"one": places[0], "other": places[1], "labels_differ": differ})
    return {**duplicates, "examples": examples}


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
        self.statistics = {name: FeatureStatistics(feature) for name, feature in features.items()}
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
            self.statistics[name].add(columns[name])
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
        """Statistics a feature (see `statistics.py`); counts a class for a label."""
        return {
            "examples": self.rows,
            "features": {name: one.to_json() for name, one in self.statistics.items()},
            "classes": {
                name: dict(zip(self.features[name].classes, counts.tolist(), strict=True))
                for name, counts in self._counts.items()
            },
        }


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    records = next((outcome.artifact.digest for outcome in run.outcomes if outcome.name == "convert"), "")
    older = baseline(run.store, run.request.name, records)
    return {
        "features": dataset.features, "inputs": dataset.inputs, "label": dataset.label,
        "splits": sorted(names_of(dataset.splits)), "time": columns_of(dataset.splits),
        "validation": dataset.validation, "against": None if older is None else older.digest,
    }  # fmt: skip


validate = Stage("validate", validate_records, _reads, libraries=("numpy", "array-record", "chex"))
