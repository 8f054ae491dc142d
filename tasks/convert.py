"""Stage `convert`: raw files become ArrayRecord shards, a split each, with the origin of every example beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets.errors import SplitError
from datasets.readers.ignored import noting
from datasets.schema import Block, Dataset
from datasets.splits import Files, Rows, names_of
from tasks.artifact import Artifact, Draft
from tasks.dealing import ORIGIN, ROWS_PER_RECORD, Dealt, deal, drawn_over, origin_of
from tasks.parts import convert_files
from tasks.progress import LOG, Bar, bar
from tasks.quarantine import QUARANTINE, check_budget
from tasks.stage import Job, Run, Stage

__all__ = ["ORIGIN", "ROWS_PER_RECORD", "convert", "convert_raw", "origin_of"]


def convert_raw(job: Job, raw: Artifact) -> Artifact:
    """Shards of every split and, in `origin.json`, the runs of raw rows that its examples came from.

    Raises:
        DataFormatError: A raw file isn't what its format says.
        SchemaError: Columns don't fit the features, or more rows are bad than may be set aside.
        SplitError: A split is empty, or lies outside of the data.
    """
    dataset, folder = job.request.dataset, job.store.path(raw)

    def fill(draft: Draft) -> None:
        # Not in the facts: a file that isn't data must not make other records
        ignored = Counter(job.store.manifest(raw)["provenance"].get("notes", {}).get("ignored", {}))
        with bar(job.stage, None, "examples") as progress:
            if dataset.by_file:
                dealt = convert_files(job, raw, draft.folder, progress)
            else:
                drawn = drawn_over(dataset, dataset.read(folder))
                with noting(ignored):
                    dealt = deal(dataset, _counted(dataset.read(folder), progress), draft.folder, drawn)
        ignored.update(dealt.ignored)
        job.notes["ignored"] = dict(sorted(ignored.items()))
        _check_aside(dataset, dealt, draft)
        _check_counts(dataset, dealt)
        draft.sealed = dealt.digests
        draft.facts = {
            "splits": {
                split: {"rows": _rows_of(dealt, split), "shards": dealt.shards[split]}
                for split in names_of(dataset.splits)
            },
            "rows_per_record": ROWS_PER_RECORD,
            "features": _layout(dataset),
            "raw_rows": dealt.rows, "left_out": dealt.left_out,
            "quarantined": dealt.quarantined, "reasons": dealt.reasons,
        }  # fmt: skip

    return job.commit("records", fill)


def _counted(blocks: Iterable[Block], progress: Bar) -> Iterator[Block]:
    for block in blocks:
        yield block
        progress.advance(len(next(iter(block.columns.values()))))


def _rows_of(dealt: Dealt, split: str) -> int:
    return sum(shard["rows"] for shard in dealt.shards[split])


def _check_aside(dataset: Dataset, dealt: Dealt, draft: Draft) -> None:
    if dealt.quarantined:
        with (draft.folder / QUARANTINE).open(encoding="utf-8") as file:
            first = file.readline().strip()
        check_budget(dataset.validation, dealt.quarantined, dealt.rows, dealt.reasons, first)
        LOG.warning("%d of %d rows are set aside; see %s", dealt.quarantined, dealt.rows, QUARANTINE)


def _check_counts(dataset: Dataset, dealt: Dealt) -> None:
    for split in names_of(dataset.splits):
        rows = _rows_of(dealt, split)
        rule = dataset.splits[split] if isinstance(dataset.splits, Mapping) else dataset.splits
        if rows == 0:
            raise SplitError(f"split {split!r} is empty", got=f"0 of {dealt.rows} rows", expected=rule)
        expected = rule.stop - rule.start if isinstance(rule, Rows) else None
        expected = rule.count if isinstance(rule, Files) else expected
        if expected is not None and not expected - dealt.quarantined <= rows <= expected:
            raise SplitError(f"split {split!r} has another number of rows than stated", got=rows, expected=expected)


def _layout(dataset: Dataset) -> dict[str, Any]:
    """What of the features decides the bytes: bounds and class names don't."""
    return {
        name: {
            "dtype": np.dtype(feature.dtype).str,
            "shape": list(feature.shape),
            **({"of": feature.of} if feature.of else {}),
        }
        for name, feature in dataset.features.items()
    }


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    parameters = {
        "read": dataset.read, "splits": dataset.splits, "features": _layout(dataset), "by_file": dataset.by_file,
    }  # fmt: skip
    if not isinstance(dataset.splits, Mapping):
        parameters["order"] = names_of(dataset.splits)  # shares are dealt out in it
    if dataset.validation.on_bad == "quarantine":  # then bounds and the number of classes decide which rows there are
        bounds = {name: list(feature.bounds) for name, feature in dataset.features.items()}
        parameters |= {"bounds": bounds, "most_bad": dataset.validation.most_bad}
    return parameters


convert = Stage("convert", convert_raw, _reads, libraries=("array-record", "numpy", "pyarrow", "pillow"))
