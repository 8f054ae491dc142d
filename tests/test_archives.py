"""Archives: plain files come out, and nothing lands outside, links, or goes on for ever."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from datasets.errors import DataFormatError
from datasets.readers import archives, images
from datasets.schema import Feature

FILES = {"a.txt": b"one", "deep/er/b.bin": b"\0" * 5000}


def make_zip(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def make_tar(path: Path, files: dict[str, bytes] = FILES, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


MAKERS: dict[str, Callable[[Path], Path]] = {
    "zip": make_zip,
    "tar": lambda path: make_tar(path, mode="w"),
    "tar.gz": make_tar,
    "tar.bz2": lambda path: make_tar(path, mode="w:bz2"),
    "tar.xz": lambda path: make_tar(path, mode="w:xz"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_by_its_content(tmp_path: Path, kind: str) -> None:
    archive = MAKERS[kind](tmp_path / "without-ending")
    assert archives.extract(archive, tmp_path / "to") == ["a.txt", "deep/er/b.bin"]
    assert tree(tmp_path / "to") == FILES
    with archives.extracted(archive, within=tmp_path) as folder:
        assert tree(folder) == FILES
    assert not folder.exists()


def refused(archive: Path, *facts: str, **limits: int) -> None:
    outside = archive.parent
    before = set(outside.rglob("*"))
    with pytest.raises(DataFormatError) as caught:
        archives.extract(archive, outside / "to", **limits)
    for fact in (str(archive), *facts):
        assert fact in str(caught.value)
    assert set(outside.rglob("*")) - before == {outside / "to"}


NAMES = ["/etc/evil", "../evil", "a/../../evil", "..\\evil", "C:\\evil", "C:evil", "\\evil", "\\\\host\\share\\evil"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    files = {"good": b"1", name: b"2"}
    refused(make_tar(tmp_path / "t.tar", files, "w"), "leads out", repr(name))
    (tmp_path / "to").rmdir()
    refused(make_zip(tmp_path / "t.zip", files), "leads out", repr(name))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_tar(tmp_path: Path, kind: bytes) -> None:
    path = make_tar(tmp_path / "t.tar", mode="w")
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = kind, "a.txt"
        archive.addfile(info)
    refused(path, "no plain file", "'link'")


def test_links_in_zip(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "t.zip")
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("link")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc")
    refused(path, "no plain file", "'link'")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "t.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("./a.txt", b"two")
    refused(path, "a name is there twice", "a.txt")


def test_a_file_where_a_folder_is(tmp_path: Path) -> None:
    refused(make_zip(tmp_path / "t.zip", {"a": b"1", "a/b": b"2"}))


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1_000_000)
    bomb = {"good": b"1", "bomb": b"\0" * 20_000_000}
    refused(make_zip(tmp_path / "t.zip", bomb), "more than is allowed", "'bomb'")
    (tmp_path / "to").rmdir()
    refused(make_tar(tmp_path / "t.tar", bomb), "more than is allowed", "'bomb'")


def test_a_header_that_promises_less_than_comes(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "t.zip", {"big": b"\0" * 100_000})
    data = path.read_bytes().replace(struct.pack("<I", 100_000), struct.pack("<I", 10))
    path.write_bytes(data)
    refused(path)


def test_limits(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "t.zip")
    refused(archive, "more than is allowed", most_bytes=5002)
    (tmp_path / "to").rmdir()
    refused(archive, "more than 1 files", most_files=1)
    assert len(archives.extract(archive, tmp_path / "to", most_bytes=5003, most_files=2)) == 2


def test_damaged_archives(tmp_path: Path) -> None:
    whole = make_zip(tmp_path / "t.zip").read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"a.txt") + 6] ^= 0xFF
    for data in (whole[:-10], bytes(flipped)):
        (tmp_path / "t.zip").write_bytes(data)
        refused(tmp_path / "t.zip")
        (tmp_path / "to").rmdir()
    packed = make_tar(tmp_path / "t.tar").read_bytes()
    (tmp_path / "t.tar").write_bytes(packed[:-20])
    refused(tmp_path / "t.tar")
    (tmp_path / "to").rmdir()
    (tmp_path / "page.zip").write_bytes(b"<!DOCTYPE html>")
    refused(tmp_path / "page.zip", "neither zip nor tar", "<!DOCTYP")


def test_only_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").touch()
    with pytest.raises(DataFormatError, match="empty folder"):
        archives.extract(make_zip(tmp_path / "t.zip"), tmp_path / "to")
    assert (tmp_path / "to" / "mine").exists()


def test_a_reader_over_an_archive(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("L", (3, 2), 7).save(picture, "PNG")
    archive = make_zip(tmp_path / "t.zip", {"cat/1.png": picture.getvalue()})
    features = {"image": Feature("uint8", (2, 3)), "label": Feature("int32", classes=("cat",))}
    with archives.extracted(archive) as folder:
        [block] = images.blocks(folder, features)
    assert block.columns["image"].tolist() == [[[7] * 3] * 2]
