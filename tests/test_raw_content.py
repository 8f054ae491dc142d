"""Raw files of a folder: found under every name they have in the wild, and only the pinned content is stored."""

from __future__ import annotations

import gzip
import hashlib
import random
from pathlib import Path

import pytest

from datasets.errors import DataFormatError, FetchError
from datasets.schema import RawFile
from tasks.raw_content import copy_local, pinned

CONTENT = random.Random(7).randbytes(150_000) + b"0" * 150_000
PACKED = gzip.compress(CONTENT, mtime=0)
NAME = "train-images-idx3-ubyte"
FILE = RawFile(NAME, sha256=hashlib.sha256(CONTENT).hexdigest(), bytes=len(CONTENT))


@pytest.mark.parametrize(
    ("name", "data"), [(NAME, CONTENT), (f"{NAME}.gz", PACKED), (NAME, PACKED), ("train-images.idx3-ubyte", CONTENT)]
)
def test_local_files_under_every_name(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert copy_local(tmp_path, FILE, ".gz", tmp_path / "to").read_bytes() == CONTENT
    assert [p.name for p in (tmp_path / "to").iterdir()] == [NAME]
    assert pinned(tmp_path, FILE, ".gz") == FILE
    assert pinned(tmp_path, RawFile(NAME), ".gz") == FILE, "a loose file is pinned to what it is"


def test_local_file_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    for call in (
        lambda: copy_local(tmp_path, FILE, ".gz", tmp_path / "to"),
        lambda: pinned(tmp_path, FILE, ".gz"),
    ):
        with pytest.raises(FetchError) as caught:
            call()
        for fact in (str(tmp_path), NAME, f"{NAME}.gz", "train-images.idx3-ubyte", "holiday.jpg"):
            assert fact in str(caught.value)
    with pytest.raises(FetchError, match="doesn't exist"):
        copy_local(tmp_path / "nowhere", FILE, ".gz", tmp_path / "to")


def test_local_file_with_another_content(tmp_path: Path) -> None:
    other = CONTENT[:-1] + b"x"
    (tmp_path / f"{NAME}.gz").write_bytes(gzip.compress(other))
    digest = hashlib.sha256(other).hexdigest()
    for call in (
        lambda: copy_local(tmp_path, FILE, ".gz", tmp_path / "to"),
        lambda: pinned(tmp_path, FILE, ".gz"),
    ):
        with pytest.raises(FetchError) as caught:
            call()
        for fact in (str(tmp_path / f"{NAME}.gz"), FILE.sha256, digest):
            assert fact in str(caught.value)
    assert list((tmp_path / "to").iterdir()) == []
    assert pinned(tmp_path, RawFile(NAME), ".gz") == RawFile(NAME, digest, len(other))


def test_local_files_that_are_cut_or_too_large(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(PACKED[:-20])
    with pytest.raises(DataFormatError, match="truncated"):
        copy_local(tmp_path, FILE, ".gz", tmp_path / "to")
    (tmp_path / NAME).write_bytes(gzip.compress(b"\0" * 50_000_000))
    for call in (
        lambda: copy_local(tmp_path, FILE, ".gz", tmp_path / "to"),
        lambda: pinned(tmp_path, FILE, ".gz"),
    ):
        with pytest.raises(FetchError, match=f"more than .*{len(CONTENT)} bytes"):
            call()
    assert list((tmp_path / "to").iterdir()) == []
