"""Folders whose files no list names."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from datasets.errors import DataFormatError, FetchError
from tasks.sources import archive_stem, files_below, listed, matcher, unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "raw"
    for name in ("b/2.png", "a/1.png", "top.csv", "a/deep/3.png"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(name.encode())
    return made


def test_all_files_by_name_whatever_the_folder(folder: Path, tmp_path: Path) -> None:
    assert list(files_below(folder, "**")) == ["a/1.png", "a/deep/3.png", "b/2.png", "top.csv"]
    moved = folder.rename(tmp_path / "elsewhere")
    assert next(iter(listed(moved, "**"))).sha256 == hashlib.sha256(b"a/1.png").hexdigest()
    assert [file.bytes for file in listed(moved, "**")] == [7, 12, 7, 7]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("*", ["top.csv"]), ("*/*.png", ["a/1.png", "b/2.png"]), ("a/**", ["a/1.png", "a/deep/3.png"]),
     ("**/*.png", ["a/1.png", "a/deep/3.png", "b/2.png"]), ("**/top.csv", ["top.csv"]), ("?op.csv", ["top.csv"])],
)  # fmt: skip
def test_patterns(folder: Path, pattern: str, names: list[str]) -> None:
    assert list(files_below(folder, pattern)) == names


def test_a_pattern_is_no_regular_expression() -> None:
    assert matcher("a.b")("a.b")
    assert not matcher("a.b")("axb")
    assert not matcher("*.csv")("a/b.csv")


def test_what_systems_leave_is_counted_and_left_out(folder: Path, said: pytest.LogCaptureFixture) -> None:
    for name in (".DS_Store", "__MACOSX/a/._1.png", "a/Thumbs.db", "a/._1.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "bird").mkdir()
    assert len(files_below(folder, "**")) == 4
    assert "1 x Thumbs.db, 1 x __MACOSX, 1 x empty folder bird, 2 x hidden" in said.text


def test_markers_of_a_parquet_folder_are_files_as_others(folder: Path) -> None:
    (folder / "_SUCCESS").write_bytes(b"")
    assert "_SUCCESS" in files_below(folder, "**")


def test_gzip_is_stored_uncompressed_under_its_plain_name(folder: Path) -> None:
    (folder / "b" / "2.png").unlink()
    (folder / "b" / "2.png.gz").write_bytes(gzip.compress(b"two"))
    file = next(file for file in listed(folder, "b/**"))
    assert (file.name, file.sha256, file.bytes) == ("b/2.png", hashlib.sha256(b"two").hexdigest(), 3)


def test_two_files_of_one_name_are_refused(folder: Path) -> None:
    (folder / "top.csv.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(FetchError, match="under one name") as caught:
        files_below(folder, "**")
    assert caught.value.facts["expected"] == "top.csv"
    assert "top.csv.gz" in caught.value.facts["got"]


def test_damaged_gzip_is_named(folder: Path) -> None:
    (folder / "x.gz").write_bytes(gzip.compress(os.urandom(1000))[:-200])
    with pytest.raises(DataFormatError, match="gzip"):
        listed(folder, "**")


def test_names_that_are_no_utf_8_are_escaped(folder: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(folder) + b"/a/a\xff.png"))
    path.write_bytes(b"x")
    found = files_below(folder, "a/*")
    assert found["a/a\\xff.png"] == path
    assert all(file.name.encode() for file in listed(folder, "**"))


def test_links_are_followed_and_loops_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "9.png").write_bytes(b"nine")
    (folder / "c").symlink_to(tmp_path / "other")
    (folder / "a" / "4.png").symlink_to(tmp_path / "other" / "9.png")
    assert {"c/9.png", "a/4.png"} <= set(files_below(folder, "**"))
    (folder / "a" / "loop").symlink_to(folder)
    with pytest.raises(FetchError, match="leads back") as caught:
        files_below(folder, "**")
    assert caught.value.facts["file"].endswith("a/loop")


@pytest.mark.parametrize("kind", ["fifo", "dangling"])
def test_what_is_no_file_is_named_and_not_opened(folder: Path, kind: str) -> None:
    path = folder / "a" / "pipe"
    os.mkfifo(path) if kind == "fifo" else path.symlink_to(folder / "gone")
    with pytest.raises(FetchError, match="neither a file nor a folder") as caught:
        listed(folder, "**")
    assert caught.value.facts["file"].endswith("a/pipe")


@pytest.mark.parametrize("pattern", ["*.parquet", "**"])
def test_nothing_to_read_is_an_error(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(FetchError, match="doesn't exist"):
        files_below(tmp_path / "gone", pattern)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FetchError, match="no raw file matches") as caught:
        files_below(tmp_path / "empty", pattern)
    assert caught.value.facts["expected"] == pattern


# ------------------------------------------------------------------------------------------------------------ archives


def test_archives_become_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "cats.zip", "w") as archive:
        archive.writestr("tabby/1.png", b"one")
    (tmp_path / "two.png").write_bytes(b"two")
    with tarfile.open(tmp_path / "in" / "dogs.tar", "w") as archive:
        archive.add(tmp_path / "two.png", "2.png")
    unpack(tmp_path / "in", ["cats.zip", "dogs.tar"])
    found = {path.relative_to(tmp_path / "in").as_posix() for path in (tmp_path / "in").rglob("*") if path.is_file()}
    assert found == {"cats/tabby/1.png", "dogs/2.png"}


@pytest.mark.parametrize(
    ("name", "stem"), [("a.zip", "a"), ("a.tar.gz", "a"), ("a.b.tar", "a.b"), ("plain", "plain.d")]
)
def test_name_of_an_archives_folder(name: str, stem: str) -> None:
    assert archive_stem(name) == stem


def test_an_unsafe_archive_leaves_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "bad.zip", "w") as archive:
        archive.writestr("../../outside.txt", b"x")
    with pytest.raises(DataFormatError, match="unsafe archive"):
        unpack(tmp_path / "in", ["bad.zip"])
    assert not list(tmp_path.rglob("outside.txt"))


def test_an_archive_is_not_unpacked_over_other_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cats.zip", "w") as archive:
        archive.writestr("1.png", b"one")
    (tmp_path / "cats").mkdir()
    with pytest.raises(FetchError, match="over other files"):
        unpack(tmp_path, ["cats.zip"])
