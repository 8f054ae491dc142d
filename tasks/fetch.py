"""Stage `fetch`: verified raw files, uncompressed, whatever mirror or folder they came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import FOLDER
from datasets.errors import ParameterError
from tasks.artifact import Artifact, Draft
from tasks.download import copy_local, fetch_file, pinned
from tasks.progress import bar
from tasks.request import Request, check
from tasks.stage import Job, Run, Stage


def fetch_raw(job: Job) -> Artifact:
    """Every raw file of the dataset, each with the SHA-256 that the dataset file pins for its uncompressed content.

    Raises:
        FetchError: A file is missing, or no source gave the pinned bytes.
        TransientError: The network is down; worth another try.
    """
    source = job.request.dataset.source

    def fill(draft: Draft) -> None:
        with bar(job.stage, sum(file.bytes for file in source.files), "bytes") as progress:
            before = 0
            for file in source.files:
                if (folder := local_folder(job.request)) is not None:
                    copy_local(folder, file, source.suffix, draft.folder)
                else:
                    fetch_file(
                        file, source.mirrors, source.suffix, draft.folder, partial=job.store.root / "partial",
                        progress=lambda done, total, before=before: progress.move_to(before + done),
                    )  # fmt: skip
                before += file.bytes
                progress.move_to(before)
        draft.facts = {"files": {file.name: file.sha256 for file in source.files}}

    return job.commit("raw", fill)


def prepared(dataset: str, **parameters: Any) -> Request:  # noqa: ANN401 - see `check`
    """The checked request, with the digest of each raw file that is on this machine: taken even when all is cached.

    Raises:
        UsageError: As `check`, or a file to download isn't pinned.
        FetchError: A raw file is missing or isn't what the dataset file pins.
    """
    request = check(dataset, **parameters)
    source, folder = request.dataset.source, local_folder(request)
    if folder is not None:
        files = tuple(pinned(folder, file, source.suffix) for file in source.files)
        return replace(request, dataset=replace(request.dataset, source=replace(source, files=files)))
    if loose := [file.name for file in source.files if not file.sha256]:
        raise ParameterError(
            "a file that is downloaded must be pinned", file=", ".join(loose), dataset=dataset,
            cure="RawFile(name, sha256=..., bytes=...) in the dataset file, or --raw with a local folder",
        )  # fmt: skip
    return request


def local_folder(request: Request) -> Path | None:
    """Folder of the raw files, when they are on this machine."""
    if request.raw is not None:
        return request.raw
    folder = request.dataset.source.folder
    return None if folder is None else FOLDER / folder


def _reads(run: Run) -> dict[str, Any]:
    # Mirrors and folders don't count: the bytes are the same wherever they come from.
    return {"files": {file.name: file.sha256 for file in run.request.dataset.source.files}}


fetch = Stage("fetch", fetch_raw, _reads)
