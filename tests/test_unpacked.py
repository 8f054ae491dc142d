"""What gzip files hold is found by their packed bytes: the same as unpacked anew, whatever happens to either file."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from datasets.errors import DataFormatError, FetchError
from datasets.readers import raw
from datasets.schema import RawFile
from tasks.raw_content import digest_of, pinned
from tasks.unpacked import NAME, Unpacked

CONTENT = b"digits" * 500


def content_of(data: bytes) -> tuple[str, int]:
    return hashlib.sha256(data).hexdigest(), len(data)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT, mtime=0))
    return path


@pytest.fixture
def unpackings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are unpacked from now on."""
    seen: list[Path] = []
    opened = raw.opened
    monkeypatch.setattr("datasets.readers.raw.opened", lambda path: seen.append(path) or opened(path))
    return seen


def looked(store: Path, *sources: Path) -> list[tuple[str, int]]:
    """What a run finds, and keeps."""
    known = Unpacked(store / NAME)
    found = [digest_of(source, known) for source in sources]
    known.write()
    return found


def test_a_file_is_unpacked_once_in_its_life(tmp_path: Path, source: Path, unpackings: list[Path]) -> None:
    assert looked(tmp_path / "store", source) == [content_of(CONTENT)]
    assert looked(tmp_path / "store", source) == [content_of(CONTENT)]
    assert unpackings == [source]
    moved = source.rename(tmp_path / "b.gz")
    assert pinned(tmp_path, RawFile("b", *content_of(CONTENT)), ".gz", Unpacked(tmp_path / "store" / NAME)).sha256
    assert unpackings == [source]
    assert looked(tmp_path / "store", moved) == [content_of(CONTENT)]


def test_other_bytes_of_the_same_size_and_time_are_unpacked(tmp_path: Path, source: Path) -> None:
    looked(tmp_path / "store", source)
    at, other = source.stat(), gzip.compress(CONTENT[::-1], mtime=0)
    data = source.read_bytes()
    data = data[:8] + bytes([data[8] ^ 2, data[9] ^ 1]) + data[10:]  # bytes of the header that decide nothing
    source.write_bytes(data)
    os.utime(source, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert looked(tmp_path / "store", source) == [content_of(CONTENT)]
    source.write_bytes(other)
    os.utime(source, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert looked(tmp_path / "store", source) == [content_of(CONTENT[::-1])]
    with pytest.raises(FetchError, match="pins"):
        pinned(tmp_path, RawFile("a", *content_of(CONTENT)), ".gz", Unpacked(tmp_path / "store" / NAME))


def test_a_file_that_changes_while_it_is_unpacked_is_not_kept(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, before, other = raw.opened, source.read_bytes(), gzip.compress(b"others", mtime=0)

    def late(path: Path):  # noqa: ANN202
        path.write_bytes(other)
        return opened(path)

    with monkeypatch.context() as patched:
        patched.setattr("datasets.readers.raw.opened", late)
        looked(tmp_path / "store", source)
    source.write_bytes(before)
    assert looked(tmp_path / "store", source) == [content_of(CONTENT)]


@pytest.mark.parametrize("harm", [b"", b"{}", b"[1]", None], ids=["empty", "no digest", "a list", "edited"])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, source: Path, harm: bytes | None) -> None:
    kept = tmp_path / "store" / NAME
    looked(kept.parent, source)
    text = kept.read_bytes()
    kept.write_bytes(text.replace(content_of(CONTENT)[0].encode(), b"0" * 64) if harm is None else harm)
    assert looked(kept.parent, source) == [content_of(CONTENT)]
    assert kept.read_bytes() == text


def test_what_is_gone_is_forgotten_and_what_is_not_gzip_or_too_much_was_never_kept(
    tmp_path: Path, source: Path
) -> None:
    other, plain, damaged = (tmp_path / name for name in ("other.gz", "plain", "damaged.gz"))
    other.write_bytes(gzip.compress(b"more"))
    plain.write_bytes(b"plain")
    damaged.write_bytes(source.read_bytes()[:-9])
    store = tmp_path / "store"
    assert looked(store, source, plain) == [content_of(CONTENT), content_of(b"plain")]
    assert looked(store, other) == [content_of(b"more")]
    assert set(Unpacked(store / NAME)._kept) == {hashlib.sha256(other.read_bytes()).hexdigest()}
    for _ in range(2):
        known = Unpacked(store / NAME)
        with pytest.raises(DataFormatError, match="truncated"):
            digest_of(damaged, known)
        with pytest.raises(FetchError, match="pins"):  # more than is pinned is never read to its end
            pinned(tmp_path, RawFile("a", "0" * 64, 5), ".gz", known)
        known.write()
    assert Unpacked(store / NAME)._kept == {}


def test_a_store_that_is_only_readable_costs_time_alone(tmp_path: Path, source: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    assert looked(tmp_path / "store", source) == [content_of(CONTENT)]
