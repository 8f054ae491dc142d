"""Raw files: the names they are looked for under, and gzip known by content, read whole or refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from datasets.errors import DataFormatError, FetchError
from datasets.readers.raw import find, names_of, opened

DATA = bytes(range(256)) * 40
PACKED = gzip.compress(DATA, mtime=0)


def read(path: Path) -> bytes:
    with opened(path) as stream:
        return stream.read()


def test_the_names_of_a_raw_file_in_their_order() -> None:
    assert names_of("t.csv") == ("t.csv", "t.csv.gz")
    assert names_of("images-idx3-ubyte") == (
        "images-idx3-ubyte", "images-idx3-ubyte.gz", "images.idx3-ubyte", "images.idx3-ubyte.gz",
    )  # fmt: skip
    assert names_of("t", ".zz") == ("t", "t.zz", "t.gz")


def test_the_first_name_that_is_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "a-idx1").mkdir()
    for name in reversed(names_of("a-idx1")[1:]):
        (tmp_path / name).touch()
        assert find(tmp_path, "a-idx1") == tmp_path / name
    assert find(tmp_path, "a-idx1").name == "a-idx1.gz"


def test_a_missing_file_says_what_was_looked_for_and_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="isn't there") as caught:
        find(tmp_path, "t.csv")
    assert caught.value.facts == {"folder": tmp_path, "looked_for": "t.csv, t.csv.gz", "folder_holds": "nothing"}
    for i in range(14):
        (tmp_path / f"{i:02}").touch()
    with pytest.raises(FetchError) as caught:
        find(tmp_path, "t.csv")
    listed = ", ".join(f"{i:02}" for i in range(12))
    assert caught.value.facts["folder_holds"] == f"{listed} and 2 more"
    with pytest.raises(FetchError, match="folder doesn't exist") as caught:
        find(tmp_path / "no", "t.csv")
    assert caught.value.facts["folder"] == tmp_path / "no"


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DATA, DATA), (b"", b""), (b"\x1f", b"\x1f"), (PACKED, DATA), (PACKED + PACKED, DATA + DATA),
        (PACKED + b"\0" * 9, DATA), (gzip.compress(b"", mtime=0), b""), (gzip.compress(PACKED, mtime=0), PACKED),
    ],
    ids=["plain", "empty", "one byte", "gzip", "two members", "padded", "gzip of nothing", "gzip of gzip"],
)  # fmt: skip
def test_content_and_not_the_name_says_whether_it_is_gzip(
    tmp_path: Path, name: str, content: bytes, expected: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (PACKED[:-9], "is truncated"),
        (PACKED[:-4], "is truncated"),
        (PACKED[:5], "is truncated"),
        (PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:], "fails its CRC check"),
        (PACKED[:-4] + bytes([PACKED[-4] ^ 1]) + PACKED[-3:], "fails its CRC check"),
        (PACKED + b"<html>", "is followed by trailing data"),
        (PACKED[:10] + b"\xff" * 20, "is corrupt"),
    ],
    ids=["body cut", "length cut", "header cut", "CRC", "length", "text behind it", "body"],
)
def test_damage_to_gzip_names_its_file(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataFormatError, match=f"gzip file {what}") as caught:
        read(tmp_path / "t.csv")
    assert caught.value.facts["file"] == tmp_path / "t.csv"
    assert caught.value.cure == "fetch it again"
