"""A record of the cache is used only when it is plain JSON and its artifact holds; only passing trouble is retried."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.results import ResultRecord, ResultRecordMetadata  # pyright: ignore[reportPrivateImportUsage]
from prefect.serializers import JSONSerializer, PickleSerializer
from prefect.states import Completed, Failed, exception_to_failed_state

from datasets.errors import (
    ArtifactDamaged,
    CheckpointCorrupt,
    DataFormatError,
    FetchError,
    NonFiniteError,
    ParameterError,
    SchemaError,
    TransientError,
)
from tasks.artifact import Artifact, Draft, Store
from tasks.cache import ContentKey, deserves_retry, flaw

KEY = "k" * 32


def fill(draft: Draft) -> None:
    (draft.folder / "data").write_bytes(b"data")


def nothing_lost(store: Store, artifact: Artifact) -> str | None:
    return None


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def artifact(store: Store) -> Artifact:
    return store.commit("records", "mnist", KEY, fill, {})


@pytest.fixture
def record(store: Store, artifact: Artifact) -> Path:
    """As Prefect writes it."""
    path = store.root / "cache" / KEY
    path.parent.mkdir()
    metadata = ResultRecordMetadata(serializer=JSONSerializer(), storage_key=str(path))
    path.write_bytes(ResultRecord(result=artifact.to_json(), metadata=metadata).serialize())
    return path


def edit(record: Path, change: Callable[[dict[str, Any]], object]) -> None:
    outer = json.loads(record.read_text())
    change(outer)
    record.write_text(json.dumps(outer))


def handle(**changes: Any) -> Callable[[Path], None]:
    def change(outer: dict[str, Any]) -> None:
        outer["result"] = json.dumps({**json.loads(outer["result"]), **changes})

    return lambda record: edit(record, change)


def serializer(**changes: Any) -> Callable[[Path], None]:
    return lambda record: edit(record, lambda outer: outer["metadata"]["serializer"].update(changes))


def pickled(record: Path) -> None:
    metadata = ResultRecordMetadata(serializer=PickleSerializer(), storage_key=str(record))
    record.write_bytes(ResultRecord(result={"a": 1}, metadata=metadata).serialize())


DAMAGED = "the cache record is damaged"
NOT_PLAIN = "the cache record isn't plain JSON"
FLAWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda r: os.truncate(r, r.stat().st_size // 2), DAMAGED),
    "empty": (lambda r: os.truncate(r, 0), DAMAGED),
    "unreadable": (lambda r: r.unlink(), DAMAGED),
    "not text": (lambda r: r.write_bytes(b"\xff\xfe\x80"), DAMAGED),
    "not JSON": (lambda r: r.write_text("artifact"), DAMAGED),
    "a list": (lambda r: r.write_text("[]"), DAMAGED),
    "null": (lambda r: r.write_text("null"), DAMAGED),
    "too deep": (lambda r: r.write_text("[" * 200_000), DAMAGED),
    "without metadata": (lambda r: edit(r, lambda outer: outer.pop("metadata")), DAMAGED),
    "without result": (lambda r: edit(r, lambda outer: outer.pop("result")), DAMAGED),
    "result not JSON": (lambda r: edit(r, lambda outer: outer.update(result="{")), DAMAGED),
    "result a number": (lambda r: edit(r, lambda outer: outer.update(result=3)), DAMAGED),
    "another field in the handle": (handle(path="/etc"), DAMAGED),
    "a class to import in the handle": (handle(__class__="os.system"), DAMAGED),
    "a number in the handle": (handle(dataset=3), "the cache record holds no artifact"),
    "pickled": (pickled, NOT_PLAIN),
    "pickled serializer named": (serializer(type="pickle"), NOT_PLAIN),
    "compressed pickle named": (serializer(type="compressed/pickle"), NOT_PLAIN),
    "another JSON library named": (serializer(jsonlib="os"), NOT_PLAIN),
    "another decoder named": (serializer(object_decoder="os.system"), NOT_PLAIN),
    "options for the decoder": (serializer(loads_kwargs={"cls": "os.system"}), NOT_PLAIN),
    "record of another run": (handle(key="l" * 32), "the cache record is that of another stage run"),
    "another digest": (handle(digest="0" * 64), "cached another artifact is in this place"),
    "another kind": (handle(kind="weights"), "cached artifact missing"),
}


def test_a_sound_record_of_prefect_is_used(store: Store, record: Path) -> None:
    assert flaw(record, store, nothing_lost) is None


@pytest.mark.parametrize("name", FLAWS)
def test_a_damaged_record_is_not_used(store: Store, record: Path, name: str) -> None:
    damage, reason = FLAWS[name]
    damage(record)
    got = flaw(record, store, nothing_lost)
    assert got is not None
    assert got.startswith(reason)


@pytest.mark.parametrize(
    ("damage", "reason", "file"),
    [
        (shutil.rmtree, "cached artifact missing", KEY),
        (lambda folder: (folder / "data").unlink(), "cached a file of an artifact is missing", "data"),
        (lambda folder: (folder / "data").write_bytes(b"dat"), "cached a file of an artifact was cut", "data"),
        (lambda folder: (folder / "data").write_bytes(b"DATA"), "cached a file of an artifact was edited", "data"),
        (lambda folder: (folder / "more").touch(), "cached a file doesn't belong", "more"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "cached the manifest was edited", "manifest.json"),
    ],
)
def test_a_record_whose_artifact_does_not_hold_is_not_used(
    store: Store, record: Path, artifact: Artifact, damage: Callable[[Path], object], reason: str, file: str
) -> None:
    damage(store.path(artifact))
    got = flaw(record, store, nothing_lost)
    assert got is not None
    assert got.startswith(reason)
    assert got.endswith(file)


def test_an_artifact_that_the_disk_does_not_give_is_a_reason(store: Store, record: Path) -> None:
    def broken(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    assert flaw(record, store, nothing_lost) is None
    assert "can't be read: [Errno 5]" in str(flaw(record, Store(store.root, sha256=broken), nothing_lost))


def test_what_the_stage_lost_besides_is_a_reason(store: Store, record: Path, artifact: Artifact) -> None:
    def lost(store: Store, given: Artifact) -> str | None:
        assert given == artifact
        return "the champion is gone"

    assert flaw(record, store, lost) == "the champion is gone"


def asked(store: Store, record: Path) -> str:
    policy = ContentKey(key=KEY, store=store, records=record.parent, lost=nothing_lost)
    context = cast("Any", SimpleNamespace(task=SimpleNamespace(name="convert")))
    return policy.compute_key(context, {"run": object()}, {})


def test_the_key_is_the_stages_and_a_flawed_record_is_dropped_with_the_reason(
    store: Store, record: Path, artifact: Artifact, said: pytest.LogCaptureFixture
) -> None:
    assert asked(store, record) == KEY
    assert record.exists()
    assert said.messages == []
    shutil.rmtree(store.path(artifact))
    assert asked(store, record) == KEY
    assert not record.exists()
    assert said.messages == [f"convert runs again: cached artifact missing: {store.path(artifact)}"]
    assert asked(store, record) == KEY
    assert len(said.messages) == 1
    (record / "deeper").mkdir(parents=True)  # what is in a record's place goes too, or the stage would run every time
    assert asked(store, record) == KEY
    assert not record.exists()
    assert "IsADirectoryError" in said.messages[1]


class BrokenPictureError(OSError):
    """As Pillow's UnidentifiedImageError and gzip's BadGzipFile: an OSError without a number."""


PASSING = [
    TransientError("the mirror is busy"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    ConnectionError("refused"),
    TimeoutError("too slow"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
]
LASTING = [
    SchemaError("labels out of range"),
    DataFormatError("not an IDX file"),
    FetchError("another file"),
    NonFiniteError("NaN"),
    ParameterError("0 epochs"),
    CheckpointCorrupt("bytes differ"),
    ArtifactDamaged("cut"),
    FileNotFoundError(errno.ENOENT, "No such file"),
    FileNotFoundError("gone"),
    PermissionError(errno.EACCES, "denied"),
    IsADirectoryError(errno.EISDIR, "a folder"),
    FileExistsError(errno.EEXIST, "exists"),
    OSError(errno.EROFS, "Read-only file system"),
    OSError(errno.ENAMETOOLONG, "File name too long"),
    BrokenPictureError("cannot identify image file"),
    ValueError("bad"),
    KeyError("x"),
    ZeroDivisionError(),
    MemoryError(),
]


def retried(error: Exception) -> bool:
    import asyncio

    state = asyncio.run(exception_to_failed_state(error))
    return deserves_retry(cast("Any", None), cast("Any", None), state)


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_trouble_that_passes_is_retried(error: Exception) -> None:
    assert retried(error)


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_fails_the_same_way_every_time_is_not(error: Exception) -> None:
    assert not retried(error)


def test_a_transient_cause_does_not_make_a_data_error_transient() -> None:
    error = SchemaError("bad")
    error.__cause__ = ConnectionError()
    assert not retried(error)


def test_states_without_an_error_of_ours_are_not_retried() -> None:
    for state in (Completed(data=1), Failed(message="?")):
        assert not deserves_retry(cast("Any", None), cast("Any", None), state)


@pytest.mark.parametrize(
    ("flow", "text", "news"),
    [
        ("train", "Finished in state Cached(type=COMPLETED)", False), ("train", "Finished in state Completed()", True),
        ("somebody-elses", "Finished in state Cached(type=COMPLETED)", True), (None, "anything", True),
    ],
)  # fmt: skip
def test_a_cached_stage_has_no_line_of_its_own(flow: str | None, text: str, news: bool) -> None:
    logger = logging.getLogger("prefect.task_runs")
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None, extra={"flow_name": flow})
    assert bool(logger.filter(record)) == news
