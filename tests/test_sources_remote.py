"""Object stores through fsspec, with its store in memory."""

from __future__ import annotations

import gzip
import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from datasets.errors import FetchError, GristmillError, ParameterError, TransientError
from tasks.sources_remote import download, find, is_remote, look_up


@pytest.fixture
def bucket() -> Iterator[str]:
    url = f"memory://bucket-{uuid.uuid4().hex}"
    put(url, "day-1.csv", b"one")
    put(url, "deep/day-2.csv.gz", gzip.compress(b"two"))
    put(url, "deep/.hidden", b"x")
    yield url
    fsspec.filesystem("memory").rm(url.removeprefix("memory:/"), recursive=True)


def put(url: str, name: str, content: bytes) -> None:
    fsspec.filesystem("memory").pipe(f"{url.removeprefix('memory:/')}/{name}", content)


def nothing(done: int, total: int | None) -> None:
    pass


@pytest.mark.parametrize(
    ("url", "remote"),
    [("s3://b/c", True), ("memory://x", True), ("https://a/b", False), ("http://a", False), ("x", False)],
)
def test_which_addresses_fsspec_is_asked_for(url: str, remote: bool) -> None:
    assert is_remote(url) is remote


def test_objects_that_match_by_name(bucket: str) -> None:
    assert [remote.name for remote in find(bucket, "**")] == ["day-1.csv", "deep/day-2.csv"]
    assert [remote.name for remote in find(f"{bucket}/", "*.csv")] == ["day-1.csv"]
    with pytest.raises(FetchError, match="no object matches") as caught:
        find(bucket, "*.parquet")
    assert caught.value.facts["expected"] == "*.parquet"


def test_a_changed_object_has_another_version(bucket: str) -> None:
    before = find(bucket, "day-1.csv")
    assert find(bucket, "day-1.csv") == before
    put(bucket, "day-1.csv", b"ONE")
    assert find(bucket, "day-1.csv") != before


def test_named_objects_are_found_with_and_without_the_suffix(bucket: str) -> None:
    one, two = look_up(bucket, ("day-1.csv", "deep/day-2.csv"), ".gz")
    assert (one.name, two.name) == ("day-1.csv", "deep/day-2.csv")
    with pytest.raises(FetchError, match="can't be read") as caught:
        look_up(bucket, ("gone.csv",), ".gz")
    assert "gone.csv" in caught.value.facts["got"]


def test_objects_are_streamed_uncompressed_and_digested(bucket: str, tmp_path: Path) -> None:
    seen: list[int] = []
    for remote, content in zip(find(bucket, "**"), (b"one", b"two"), strict=True):
        file = download(bucket, remote, tmp_path, lambda done, total: seen.append(done))
        assert (file.sha256, file.bytes) == (hashlib.sha256(content).hexdigest(), 3)
        assert (tmp_path / file.name).read_bytes() == content
    assert seen[0] == 3
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"day-1.csv", "day-2.csv"}


def test_an_object_that_changes_while_it_is_read_is_tried_again(bucket: str, tmp_path: Path) -> None:
    (remote,) = find(bucket, "day-1.csv")
    with pytest.raises(TransientError, match="changed while it was read"):
        download(bucket, remote, tmp_path, lambda done, total: put(bucket, "day-1.csv", b"other"))
    assert not list(tmp_path.iterdir())


def test_an_object_that_is_gone(bucket: str, tmp_path: Path) -> None:
    (remote,) = find(bucket, "day-1.csv")
    fsspec.filesystem("memory").rm(remote.path)
    with pytest.raises(FetchError, match="can't be read"):
        download(bucket, remote, tmp_path, nothing)


def test_a_protocol_whose_client_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str, **options: Any) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(ParameterError, match="s3:// can't be read") as caught:
        find("s3://bucket/x", "**")
    assert caught.value.cure == "pip install s3fs"


def test_an_unknown_protocol_is_a_usage_error() -> None:
    with pytest.raises(ParameterError, match="nosuch:// can't be read"):
        find("nosuch://bucket/x", "**")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PermissionError("no"), FetchError), (FileNotFoundError("bucket"), FetchError),
     (OSError(5, "i/o"), TransientError), (TimeoutError("slow"), TransientError),
     (ConnectionError("reset"), TransientError)],
)  # fmt: skip
def test_troubles_of_a_store_are_typed(
    bucket: str, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[GristmillError]
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(MemoryFileSystem, "find", broken)
    with pytest.raises(kind) as caught:
        find(bucket, "**")
    assert caught.value.facts["url"] == bucket
    assert type(error).__name__ in caught.value.facts["got"]
