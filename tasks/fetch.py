"""Stage `fetch`: verified raw files, uncompressed, whatever folder, mirror or object store they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets import FOLDER
from datasets.errors import FetchError, GristmillError, ParameterError
from datasets.readers.ignored import noting
from datasets.schema import RawFile, Source
from tasks.artifact import MANIFEST, Artifact, Draft, Store
from tasks.download import fetch_file
from tasks.durable import read_json
from tasks.mirror import Progress
from tasks.progress import Bar, bar
from tasks.raw_content import copy_file, copy_local, digest_of, pinned
from tasks.request import Request, check
from tasks.sources import files_below, listed, unpack
from tasks.sources_first_use import FirstUse
from tasks.sources_remote import RemoteFile, download, find, is_remote, look_up
from tasks.stage import Job, Run, Stage
from tasks.unpacked import NAME as KEPT
from tasks.unpacked import Unpacked

ALL = "**"


def fetch_raw(job: Job) -> Artifact:
    """Every raw file of the dataset, each with the SHA-256 that the dataset file pins, or that it had at the start.

    Raises:
        FetchError: A file is missing, isn't what it was, or no source gave the pinned bytes.
        DataFormatError: An archive isn't safe to unpack.
        TransientError: The network is down; worth another try.
    """
    source = job.request.dataset.source

    def fill(draft: Draft) -> None:
        ignored: Counter[str] = Counter()
        with bar(job.stage, sum(file.bytes for file in source.files) or None, "bytes") as progress, noting(ignored):
            files = list(_placed(job, draft.folder, progress))
        job.notes["ignored"] = dict(ignored)
        if source.unpack:
            unpack(draft.folder, [file.name for file in files])
        draft.facts = {"files": {file.name: file.sha256 for file in files}}

    return job.commit("raw", fill)


def prepared(dataset: str, *, keep: bool = True, **parameters: Any) -> Request:  # noqa: ANN401 - see `check`
    """The checked request with all that can be known of the raw files: taken anew for every run, even if all is cached.

    Files in a folder get their digest; objects in a store their version; what is downloaded over http must be stated.

    Args:
        dataset: Name of a file under `datasets/`.
        keep: Whether the store may keep what gzip files hold; a plan only reads.
        parameters: Of `check`.

    Raises:
        UsageError: As `check`, or the source can't work.
        FetchError: A raw file is missing or isn't what the dataset file pins.
        TransientError: An object store had trouble.
    """
    request = check(dataset, **parameters)
    if request.parallel.processes == 1:  # else each process looks for itself
        request.parallel.check_devices()
    source, folder = request.dataset.source, local_folder(request)
    if folder is not None:
        pattern = source.pattern or (ALL if source.generate else None)
        known = Unpacked(request.store / "raw" / request.name / KEPT)
        named = (pinned(folder, file, source.suffix, known) for file in source.files)
        files = tuple(named) if pattern is None else listed(folder, pattern, known)
        if keep:
            known.write()
    elif (address := _object_store(source)) is not None:
        files = _versioned(source, address)
    elif source.pattern is not None:
        raise ParameterError(
            "a pattern needs a place whose files can be listed", parameter="pattern", got=source.pattern,
            dataset=dataset, expected="a folder, or a mirror such as s3://bucket/folder", cure="--raw FOLDER",
        )  # fmt: skip
    else:
        return request
    return replace(request, dataset=replace(request.dataset, source=replace(source, files=files)))


def local_folder(request: Request) -> Path | None:
    """Folder of the raw files, when they are on this machine."""
    if request.raw is not None:
        return request.raw
    folder = request.dataset.source.folder
    return None if folder is None else FOLDER / folder


def generates(request: Request) -> bool:
    """Whether the raw files are made by code."""
    return request.dataset.source.generate is not None and local_folder(request) is None


def _placed(job: Job, target: Path, progress: Bar) -> Iterator[RawFile]:
    """Puts each raw file into `target` and gives it with the digest of what is there."""
    source, folder = job.request.dataset.source, local_folder(job.request)
    if folder is not None:
        return _from_folder(folder, source, target, progress)
    if source.generate is not None:
        return _generated(source.generate, target)
    return _downloaded(job, target, progress)


def _from_folder(folder: Path, source: Source, target: Path, progress: Bar) -> Iterator[RawFile]:
    lists = source.pattern is not None or source.generate is not None
    found = files_below(folder, source.pattern or ALL) if lists else {}
    for file in source.files:
        if not lists:
            copy_local(folder, file, source.suffix, target)
        elif file.name in found:
            copy_file(found[file.name], file, target)
        else:
            raise FetchError("a raw file is gone since the run started", folder=folder, file=file.name)
        progress.advance(file.bytes)
        yield file


def _generated(generate: Any, target: Path) -> Iterator[RawFile]:  # noqa: ANN401 - see Source.generate
    generate(target)
    for name, path in files_below(target, ALL).items():
        yield RawFile(name, *digest_of(path))


def _downloaded(job: Job, target: Path, progress: Bar) -> Iterator[RawFile]:
    source, record = job.request.dataset.source, FirstUse(job.store.root / "raw" / job.request.name)
    address = _object_store(source)
    objects = {} if address is None else _objects(source, address)
    for file in source.files:
        before = progress.done

        def moved(done: int, total: int | None = None, before: int = before) -> None:
            progress.move_to(before + done)

        wanted = file if file.sha256 else record.pin(file.name, file.version)
        if not job.anew and (kept := _kept(job.store, job.request.name, wanted)) is not None:
            copy_file(kept, wanted, target)
            made = wanted
        elif address is not None:
            made = _from_object_store(address, file, objects[file.name], target, moved)
        else:
            made = _from_mirrors(job, wanted, target, moved, None if file.sha256 else record)
        if not file.sha256:
            record.see(made, file.version)
        progress.move_to(before + made.bytes)
        yield made


def _from_object_store(address: str, file: RawFile, remote: RemoteFile, target: Path, moved: Progress) -> RawFile:
    if file.version not in ("", remote.version):
        raise FetchError("an object changed since the run started", file=file.name, cure="run it again")
    made = download(address, remote, target, moved)
    if file.sha256 and (made.sha256, made.bytes) != (file.sha256, file.bytes):
        raise FetchError(
            "an object isn't the file that the dataset pins", file=remote.path, got=f"sha256 {made.sha256}",
            expected=f"sha256 {file.sha256}, {file.bytes} bytes",
        )  # fmt: skip
    return made


def _from_mirrors(job: Job, file: RawFile, target: Path, moved: Progress, record: FirstUse | None) -> RawFile:
    source, partial = job.request.dataset.source, job.store.root / "partial"
    try:
        path = fetch_file(file, source.mirrors, source.suffix, target, partial=partial, progress=moved)
    except FetchError as error:
        if record is None or not file.sha256:
            raise
        raise record.changed(file, error.facts["tried"]) from error
    return RawFile(file.name, *digest_of(path))


def _kept(store: Store, dataset: str, file: RawFile) -> Path | None:
    """The file in a raw artifact of before, so that one new file of many doesn't download all of them again."""
    if not file.sha256:
        return None
    for manifest in sorted((store.root / "raw" / dataset).glob(f"*/{MANIFEST}")):
        path = manifest.parent / file.name
        try:
            listed_there = read_json(manifest)["files"].get(file.name, {}).get("sha256")
            if listed_there == file.sha256 and digest_of(path) == (file.sha256, file.bytes):
                return path
        except (GristmillError, OSError, KeyError, TypeError, AttributeError):
            continue  # a damaged artifact keeps nothing
    return None


def _object_store(source: Source) -> str | None:
    """The address of the files, if it is one that fsspec is asked for."""
    if not any(is_remote(url) for url in source.mirrors):
        return None
    address, *others = source.mirrors
    if others:
        raise ParameterError(
            "an object store has no mirrors", parameter="mirrors", got=", ".join(source.mirrors),
            expected="one address, or http and https alone",
        )  # fmt: skip
    return address


def _objects(source: Source, address: str) -> dict[str, RemoteFile]:
    """The objects of a source, by the name under which each is stored."""
    if source.pattern is not None:
        remotes = find(address, source.pattern)
    else:
        remotes = look_up(address, tuple(file.name for file in source.files), source.suffix)
    return {remote.name: remote for remote in remotes}


def _versioned(source: Source, address: str) -> tuple[RawFile, ...]:
    """The files of an object store, each that isn't pinned with the version that it has now."""
    pins = {file.name: file for file in source.files if file.sha256}
    return tuple(
        pins.get(name) or RawFile(name, version=remote.version) for name, remote in _objects(source, address).items()
    )


def _reads(run: Run) -> dict[str, Any]:
    # Mirrors and folders don't count: the bytes are the same wherever they come from.
    source = run.request.dataset.source
    if generates(run.request):
        libraries = {name: version(name) for name in ("numpy", "pyarrow")}
        return {"generate": source.generate, "libraries": libraries}
    files = {file.name: file.sha256 or _until_known(file, source) for file in source.files}
    return {"files": files, "unpack": True} if source.unpack else {"files": files}


def _until_known(file: RawFile, source: Source) -> dict[str, Any]:
    # What is behind an address isn't known before it is downloaded; what it turns out to be is the artifact's digest.
    return {"version": file.version} if file.version else {"mirrors": source.mirrors, "suffix": source.suffix}


fetch = Stage("fetch", fetch_raw, _reads)
