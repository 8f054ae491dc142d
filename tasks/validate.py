"""Stage `validate`: every record of every shard is read and held against the dataset's features before it is trusted.

Shards are looked at side by side, on what the configuration names (`pool.py`), and summed up in their order, so that
the report is the same wherever they were.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.schema import Feature
from datasets.splits import columns_of, names_of
from datasets.transforms import inputs_as_one, inputs_of
from tasks.artifact import Artifact, Draft
from tasks.dealing import ORIGIN, origin_of
from tasks.drift import baseline, distances, layout_of
from tasks.duplicates import Contents, fingerprints
from tasks.durable import read_json, write_bytes, write_json
from tasks.findings import findings, settle
from tasks.pool import mapped
from tasks.progress import bar
from tasks.records import Shard, Shards
from tasks.report import page
from tasks.samples import grid
from tasks.split_summary import SplitSummary
from tasks.stage import Job, Run, Stage

REPORT, PAGE, SAMPLES = "report.json", "report.md", "samples.png"


def validate_records(job: Job, records: Artifact) -> Artifact:
    """A report on every split, whose facts name the digest of the records that it vouches for.

    Raises:
        SchemaError: A record doesn't fit (it is named by split, record, raw file and row), labels conflict, inputs
            repeat or the data drifted, where the dataset file doesn't say that this is only said.
        SplitError: The train split has no example of a class, or the same inputs are in two splits.
        ArtifactDamaged: A shard isn't what its manifest says.
    """
    dataset, folder = job.request.dataset, job.store.path(records)
    inputs = inputs_of(dataset)
    job.store.verify(records)  # what is vouched for are the bytes of this digest, not whatever can be decoded
    facts = job.store.facts(records)
    origins = read_json(folder / ORIGIN)
    older = baseline(job.store, job.request.name, records.digest)
    if older is not None:
        job.store.touch(older)  # it is needed as long as its model is in use

    def fill(draft: Draft) -> None:
        summaries: dict[str, SplitSummary] = {}
        contents = Contents()
        pieces = [one for split in names_of(dataset.splits) for one in pieces_of(split, facts, origins[split])]
        work = functools.partial(
            looked_at, folder, dataset.features, facts["rows_per_record"], inputs, dataset.label
        )  # fmt: skip
        with bar(job.stage, sum(piece.shard.rows for piece in pieces), "examples") as progress:
            for piece, (summary, hashes, labels) in zip(pieces, mapped(work, pieces), strict=True):
                if piece.split in summaries:
                    summaries[piece.split].merge(summary)
                else:
                    summaries[piece.split] = summary
                contents.add_hashed(piece.split, hashes, labels)
                progress.advance(piece.shard.rows)
        report: dict[str, Any] = {
            "splits": {name: summary.to_json() for name, summary in summaries.items()},
            "layout": layout_of(dataset),
            "conversion": {name: facts[name] for name in ("raw_rows", "left_out", "quarantined", "reasons")},
            "ignored": job.store.manifest(records)["provenance"].get("notes", {}).get("ignored", {}),
            "duplicates": _with_places(contents.duplicates(), origins),
            "drift": _drift(job, older, summaries["train"]),
        }
        report["findings"] = findings(dataset, report)
        settle(report["findings"])
        write_json(draft.folder / REPORT, report)
        (draft.folder / PAGE).write_text(page(job.request.name, report), encoding="utf-8")
        if (look := grid(open_split(folder, facts, "train", dataset.features), dataset)) is not None:
            write_bytes(draft.folder / SAMPLES, look)
        duplicates = {name: report["duplicates"][name] for name in ("within", "across", "conflicting")}
        draft.facts = {
            "records": records.digest,
            "examples": {name: part["examples"] for name, part in report["splits"].items()},
            "classes": list(dataset.features[dataset.label].classes),
            "duplicates": duplicates, "quarantined": facts["quarantined"], "warnings": len(report["findings"]),
        }  # fmt: skip
        job.notes["findings"] = [finding["what"] for finding in report["findings"]]

    return job.commit("report", fill)


@dataclass(frozen=True)
class Piece:
    """A shard to look at.

    Attributes:
        split: Whose it is.
        shard: The file.
        first: Number of its first row in the split.
        origin: Runs of raw rows that its rows came from.
    """

    split: str
    shard: Shard
    first: int
    origin: list[list[Any]]


def pieces_of(split: str, facts: Mapping[str, Any], origin: list[list[Any]]) -> Iterator[Piece]:
    """The shards of a split; they are looked at side by side, and summed up in this order wherever they were."""
    runs, first = iter(origin), 0
    file, row, left = "", 0, 0
    for made in facts["splits"][split]["shards"]:
        shard, mine, wanted = Shard(**made), [], made["rows"]
        while wanted:
            if not left:
                file, row, left = next(runs)
            taken = min(wanted, left)
            mine.append([file, row, taken])
            row, left, wanted = row + taken, left - taken, wanted - taken
        yield Piece(split, shard, first, mine)
        first += shard.rows


def looked_at(
    folder: Path, features: Mapping[str, Feature], rows_per_record: int, inputs: Sequence[str], label: str, piece: Piece
) -> tuple[SplitSummary, np.ndarray, np.ndarray]:
    """The summary of a shard, the hashes of its inputs (uint64 [rows, 2]) and its labels (int64 [rows])."""
    summary = SplitSummary(piece.split, features, piece.origin, piece.first)
    hashes, labels = [], []
    for columns in Shards(folder, [piece.shard], features, rows_per_record).blocks():
        summary.add(columns)
        hashes.append(fingerprints(inputs_as_one(columns, inputs)))
        labels.append(_labels(columns[label]))
    return summary, np.concatenate(hashes), np.concatenate(labels)


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


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    records = next((outcome.artifact.digest for outcome in run.outcomes if outcome.name == "convert"), "")
    older = baseline(run.store, run.request.name, records)
    return {
        "features": dataset.features, "inputs": list(inputs_of(dataset)), "label": dataset.label,
        "splits": sorted(names_of(dataset.splits)), "time": columns_of(dataset.splits),
        "validation": dataset.validation, "against": None if older is None else older.digest,
    }  # fmt: skip


validate = Stage("validate", validate_records, _reads, libraries=("numpy", "array-record", "chex", "matplotlib"))
