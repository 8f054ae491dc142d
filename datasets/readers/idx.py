"""IDX files, the format of MNIST and its kin: a header of sizes, then numbers, most significant byte first.

Format: two zero bytes, a type code, the number of dimensions, each dimension as uint32, then the values in C order
(Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "The IDX file format"). The reader
is strict: a file holds exactly the values that its header states, or it is refused; nothing is ever filled in.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from datasets.errors import DataFormatError
from datasets.readers import raw as raw_files
from datasets.readers.unlabelled import left_out, stand_in
from datasets.schema import Block, Feature

DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
PIECE = 1 << 20


def read_idx(path: Path) -> np.ndarray:
    """All values of one IDX file, gzip or not.

    Returns:
        An array with the dimensions and the type of the header, in the machine's byte order.

    Raises:
        DataFormatError: No IDX header, or more or fewer bytes than it states, or a damaged gzip stream.
    """
    with raw_files.opened(path) as stream:
        dtype, shape = _header(stream, path)
        size = math.prod(shape) * dtype.itemsize
        values = _take(stream, path, size, done=0, size=size)
        _expect_end(stream, path, size)
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def blocks(raw: Path, *, images: str, labels: str, rows: int = 4096) -> Iterator[Block]:
    """Images and their labels from two IDX files, `rows` at a time, in the order of the files.

    Args:
        raw: Folder of the raw files.
        images: Name of a file with [n, ...] values, at least two dimensions, without a compression suffix.
        labels: Name of a file with [n] whole numbers.
        rows: Most rows a block.

    Yields:
        Columns `image` [rows, height, width, 1] with the dtype of the file (one with other than three dimensions keeps
        its shape) and `label` int32 [rows]. A block's file is `images`, however it is compressed; its row counts images
        from 0.

    Raises:
        FetchError: One of the files isn't there.
        DataFormatError: As `read_idx`, or the two files don't belong together, or they hold no rows.
    """
    if left_out("label"):
        yield from _images(raw, images, rows)
        return
    image_path, label_path = raw_files.find(raw, images), raw_files.find(raw, labels)
    with raw_files.opened(image_path) as image_stream, raw_files.opened(label_path) as label_stream:
        image_dtype, image_shape = _header(image_stream, image_path)
        label_dtype, label_shape = _header(label_stream, label_path)
        _check_pair(image_path, image_dtype, image_shape, label_path, label_dtype, label_shape)
        count, shape = image_shape[0], image_shape[1:]
        row_bytes = math.prod(shape) * image_dtype.itemsize
        label_bytes = label_dtype.itemsize
        for row in range(0, count, rows):
            n = min(rows, count - row)
            pixels = _take(image_stream, image_path, n * row_bytes, done=row * row_bytes, size=count * row_bytes)
            values = _take(label_stream, label_path, n * label_bytes, done=row * label_bytes, size=count * label_bytes)
            if row + n == count:
                # Before the last block leaves: a file with too much in it gives no complete split.
                _expect_end(image_stream, image_path, count * row_bytes)
                _expect_end(label_stream, label_path, count * label_bytes)
            image = _pixels(pixels, image_dtype, n, shape)
            label = np.frombuffer(values, label_dtype).astype(np.int32)
            yield Block({"image": image, "label": label}, file=images, row=row)


def _images(raw: Path, images: str, rows: int) -> Iterator[Block]:
    """The same blocks without a file of labels."""
    path = raw_files.find(raw, images)
    with raw_files.opened(path) as stream:
        dtype, shape = _header(stream, path)
        _check_rank(path, dtype, shape)
        _check_rows(path, shape)
        count, row_bytes = shape[0], math.prod(shape[1:]) * dtype.itemsize
        for row in range(0, count, rows):
            n = min(rows, count - row)
            pixels = _take(stream, path, n * row_bytes, done=row * row_bytes, size=count * row_bytes)
            if row + n == count:
                _expect_end(stream, path, count * row_bytes)
            columns = {"image": _pixels(pixels, dtype, n, shape[1:]), "label": stand_in(Feature("int32"), n)}
            yield Block(columns, file=images, row=row)


def _pixels(data: bytearray, dtype: np.dtype, count: int, shape: tuple[int, ...]) -> np.ndarray:
    image = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False)
    return image.reshape(count, *shape, 1) if len(shape) == 2 else image.reshape(count, *shape)


def _header(stream: BinaryIO, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    head = stream.read(4)
    if not head:
        raise DataFormatError("empty file, no IDX header", file=path, expected="at least 4 bytes", got="0 bytes")
    if head[:2] != b"\0\0":
        raise DataFormatError(
            f"bad magic 0x{head[:2].hex()}: not an IDX file", file=path, expected="0x0000", got=f"starts {head!r}",
        )  # fmt: skip
    if len(head) < 4:
        raise DataFormatError("no complete IDX header", file=path, expected="4 bytes", got=f"{len(head)} bytes")
    code, dimensions = head[2], head[3]
    if code not in DTYPES:
        known = ", ".join(f"0x{c:02x}" for c in DTYPES)
        raise DataFormatError("unknown IDX type code", file=path, expected=known, got=f"0x{code:02x}")
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        got = f"{len(sizes)} bytes"
        raise DataFormatError("no complete IDX header", file=path, expected=f"{dimensions} sizes of 4 bytes", got=got)
    return np.dtype(DTYPES[code]), struct.unpack(f">{dimensions}I", sizes)


def _take(stream: BinaryIO, path: Path, n: int, *, done: int, size: int) -> bytearray:
    """The next `n` bytes; read in pieces, so that a header which promises too much costs no memory."""
    data = bytearray()
    while len(data) < n:
        piece = stream.read(min(PIECE, n - len(data)))
        if not piece:
            raise DataFormatError(
                "fewer values than the header states: file is truncated", file=path,
                expected=f"{size} payload bytes", got=f"{done + len(data)}",
            )  # fmt: skip
        data += piece
    return data


def _expect_end(stream: BinaryIO, path: Path, size: int) -> None:
    # Reading on to the end is also what makes gzip check its CRC.
    extra = len(stream.read(PIECE))
    if extra:
        got = f"{size + extra}" if extra < PIECE else f"at least {size + extra}"
        raise DataFormatError(
            "more values than the header states", file=path, expected=f"{size} payload bytes", got=got
        )


def _check_pair(
    image_path: Path, image_dtype: np.dtype, image_shape: tuple[int, ...],
    label_path: Path, label_dtype: np.dtype, label_shape: tuple[int, ...],
) -> None:  # fmt: skip
    if len(label_shape) != 1:
        raise DataFormatError(
            f"labels must be 1-D, found {len(label_shape)}-D ({_magic(label_dtype, label_shape)})",
            file=label_path,
        )
    if label_dtype.kind == "f":
        raise DataFormatError("labels must be whole numbers", file=label_path, got=label_dtype.name)
    _check_rank(image_path, image_dtype, image_shape)
    if image_shape[0] != label_shape[0]:
        raise DataFormatError(
            f"{image_shape[0]} images, {label_shape[0]} labels",
            images_file=image_path,
            labels_file=label_path,
        )
    _check_rows(image_path, image_shape)


def _check_rank(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    if len(shape) < 2:
        raise DataFormatError(
            f"images must have at least 2 dimensions, found {len(shape)}-D ({_magic(dtype, shape)})", file=path
        )


def _check_rows(path: Path, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise DataFormatError("the file holds 0 records", file=path, got=f"shape {shape}")


def _magic(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    code = next(code for code, name in DTYPES.items() if np.dtype(name) == dtype)
    return f"0x{code:x}{len(shape):02x}"
