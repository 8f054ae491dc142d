"""IDX files: every type, every way in which header, container and bytes can disagree."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets.errors import DataFormatError, FetchError
from datasets.readers import idx

IMAGE_HEADER = struct.pack(">IIII", 0x803, 3, 2, 2)
PIXELS = bytes(range(10, 22))
LABELS = struct.pack(">II", 0x801, 3) + bytes([2, 0, 1])


def write(folder: Path, images: bytes = IMAGE_HEADER + PIXELS, labels: bytes = LABELS) -> Path:
    (folder / "images-idx3-ubyte").write_bytes(images)
    (folder / "labels-idx1-ubyte").write_bytes(labels)
    return folder


def read(folder: Path, rows: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(idx.blocks(folder, images="images-idx3-ubyte", labels="labels-idx1-ubyte", rows=rows))
    return tuple(np.concatenate([block.columns[name] for block in blocks]) for name in ("image", "label"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(0x08, ">u1"), (0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")],
)
def test_every_type_in_the_machines_byte_order(tmp_path: Path, code: int, dtype: str) -> None:
    values = np.array([[1, 2, 100], [-3 if dtype != ">u1" else 200, 0, 5]], dtype)
    path = tmp_path / "values"
    path.write_bytes(struct.pack(">BBBBII", 0, 0, code, 2, 2, 3) + values.tobytes())
    got = idx.read_idx(path)
    np.testing.assert_array_equal(got, values.astype(dtype))
    assert got.dtype == np.dtype(dtype).newbyteorder("=")
    assert got.dtype.isnative


def test_blocks_are_consecutive_rows_with_their_place(tmp_path: Path) -> None:
    got = list(idx.blocks(write(tmp_path), images="images-idx3-ubyte", labels="labels-idx1-ubyte", rows=2))
    assert [(block.file, block.row, len(block.columns["label"])) for block in got] == [
        ("images-idx3-ubyte", 0, 2),
        ("images-idx3-ubyte", 2, 1),
    ]
    assert got[0].columns["image"].dtype == np.uint8
    assert got[0].columns["image"].shape == (2, 2, 2, 1)
    assert got[1].columns["image"].ravel().tolist() == [18, 19, 20, 21]
    assert got[1].columns["label"].dtype == np.int32
    assert got[1].columns["label"].tolist() == [1]


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "images-idx3-ubyte": zipped,  # gzip without the suffix
    "images-idx3-ubyte.gz": bytes,  # the suffix without gzip
    "images.idx3-ubyte": bytes,
    "images.idx3-ubyte.gz": zipped,
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_is_known_by_content_and_name_may_be_dotted(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / "images-idx3-ubyte").unlink()
    (tmp_path / name).write_bytes(CONTAINERS[name](IMAGE_HEADER + PIXELS))
    image, label = read(tmp_path)
    assert image.tobytes() == PIXELS
    assert label.tolist() == [2, 0, 1]


def test_zero_padding_and_several_gzip_members_are_accepted(tmp_path: Path) -> None:
    write(tmp_path, images=zipped(IMAGE_HEADER) + zipped(PIXELS) + b"\0" * 10)
    assert read(tmp_path)[0].tobytes() == PIXELS


def corrupt_crc(data: bytes) -> bytes:
    changed = bytearray(zipped(data))
    changed[-8] ^= 1
    return bytes(changed)


FULL = IMAGE_HEADER + PIXELS
BAD_IMAGES = {
    "short": (FULL[:-1], ["expected: 12 payload bytes", "got: 11"]),
    "long": (FULL + b"x", ["expected: 12 payload bytes", "got: 13"]),
    "short in gzip": (zipped(FULL[:-1]), ["expected: 12 payload bytes", "got: 11"]),
    "long in gzip": (zipped(FULL + b"x"), ["expected: 12 payload bytes", "got: 13"]),
    "empty": (b"", ["empty file", "no IDX header"]),
    "bad magic": (b"\x61\x00\x08\x03" + FULL[4:], ["bad magic 0x6100"]),
    "web page": (b"<!DOCTYPE html><html>", ["bad magic 0x3c21", "<!DO"]),
    "unknown type": (b"\0\0\x0a\x03" + FULL[4:], ["unknown IDX type code", "0x0a"]),
    "cut header": (FULL[:10], ["no complete IDX header", "6 bytes"]),
    "gzip cut": (zipped(FULL)[:-9], ["truncated"]),
    "gzip CRC": (corrupt_crc(FULL), ["fails its CRC check"]),
    "gzip and text": (zipped(FULL) + b"<html>", ["followed by trailing data", "<h"]),
    "gzip body": (zipped(FULL)[:10] + b"\xff" * 20, ["gzip file is corrupt"]),
    "1-D": (LABELS, ["found 1-D (0x801)"]),
    "no rows": (struct.pack(">IIII", 0x803, 0, 2, 2), ["0 images, 3 labels"]),
    "one too many": (struct.pack(">IIII", 0x803, 4, 2, 2) + PIXELS + b"abcd", ["4 images, 3 labels"]),
    "promises an exabyte": (struct.pack(">IIII", 0x803, 3, 2**31, 2**31), ["truncated", "got: 0"]),
}


@pytest.mark.parametrize("fault", BAD_IMAGES)
@pytest.mark.parametrize("rows", [2, 4096])
def test_images_that_break_their_promise(tmp_path: Path, fault: str, rows: int) -> None:
    data, facts = BAD_IMAGES[fault]
    with pytest.raises(DataFormatError) as caught:
        read(write(tmp_path, images=data), rows)
    for fact in [*facts, str(tmp_path / "images-idx3-ubyte")]:
        assert fact in str(caught.value)


BAD_LABELS = {
    "fewer": (struct.pack(">II", 0x801, 2) + b"\1\2", ["3 images, 2 labels"]),
    "images as labels": (FULL, ["labels must be 1-D, found 3-D (0x803)"]),
    "float": (struct.pack(">II", 0xD01, 3) + b"\0" * 12, ["labels must be whole numbers", "float32"]),
    "cut": (LABELS[:-1], ["expected: 3 payload bytes", "got: 2"]),
    "too long": (LABELS + b"\1", ["expected: 3 payload bytes", "got: 4"]),
}


@pytest.mark.parametrize("fault", BAD_LABELS)
def test_labels_that_break_their_promise(tmp_path: Path, fault: str) -> None:
    data, facts = BAD_LABELS[fault]
    with pytest.raises(DataFormatError) as caught:
        read(write(tmp_path, labels=data))
    for fact in [*facts, str(tmp_path / "labels-idx1-ubyte")]:
        assert fact in str(caught.value)


def test_no_records_at_all(tmp_path: Path) -> None:
    empty = struct.pack(">IIII", 0x803, 0, 2, 2), struct.pack(">II", 0x801, 0)
    with pytest.raises(DataFormatError, match="0 records"):
        read(write(tmp_path, *empty))


@pytest.mark.parametrize("fault", ["short", "long", "gzip cut", "gzip CRC", "gzip and text", "empty"])
def test_read_idx_is_as_strict(tmp_path: Path, fault: str) -> None:
    data, facts = BAD_IMAGES[fault]
    path = tmp_path / "values"
    path.write_bytes(data)
    with pytest.raises(DataFormatError) as caught:
        idx.read_idx(path)
    for fact in facts:
        assert fact in str(caught.value)


def test_missing_file_lists_what_was_looked_for_and_what_is_there(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(FetchError) as caught:
        next(idx.blocks(tmp_path, images="train-images-idx3-ubyte", labels="labels-idx1-ubyte"))
    for fact in ("train-images-idx3-ubyte.gz", "train-images.idx3-ubyte", "labels-idx1-ubyte", "images-idx3-ubyte"):
        assert fact in str(caught.value)


def test_damage_in_the_last_row_keeps_the_last_block_back(tmp_path: Path) -> None:
    write(tmp_path, images=FULL + b"x")
    blocks = idx.blocks(tmp_path, images="images-idx3-ubyte", labels="labels-idx1-ubyte", rows=1)
    assert [next(blocks).row, next(blocks).row] == [0, 1]
    with pytest.raises(DataFormatError):
        next(blocks)
