"""NumPy files: `.npy`, one array a file, or `.npz`, several in one. Never pickled objects.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 and 2. Arrays are streamed
row by row, also out of a compressed `.npz`; only those in Fortran order are read whole. Values follow the rules of
`values.py`; axes of size 1 may be missing or too many ([n, 28, 28] fits shape (28, 28, 1)).
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from datasets.errors import DataFormatError, NoRecordsError, SchemaError
from datasets.readers import raw as raw_files
from datasets.readers.faults import Faults, Place
from datasets.readers.unlabelled import left_out, looked_for, stand_in
from datasets.readers.values import check_fill, fit, from_arrow
from datasets.schema import Block, Feature

PIECE = 1 << 20


@dataclass
class Stream:
    """An array that is read from its first row to its last.

    Attributes:
        name: Of the file or the member, for messages.
        dtype: Of the values.
        shape: Of the whole array.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    _file: IO[bytes]
    _whole: np.ndarray | None = None
    _row: int = 0

    def take(self, rows: int) -> np.ndarray:
        """The next `rows` rows."""
        start, self._row = self._row, self._row + rows
        if self._whole is not None:
            return self._whole[start : self._row]
        shape = (rows, *self.shape[1:])
        data = _exactly(self._file, math.prod(shape) * self.dtype.itemsize, self.name, start)
        return np.frombuffer(data, self.dtype).reshape(shape)

    def expect_end(self) -> None:
        """Raises DataFormatError if bytes are left; reading on is also what makes zip check its CRC."""
        if self._file.read(1):
            raise DataFormatError("more bytes than the header states", file=self.name, expected=f"shape {self.shape}")


def blocks(
    raw: Path, where: str, features: Mapping[str, Feature], *,
    columns: Mapping[str, str] | None = None, fill: Mapping[str, float] | None = None, rows: int = 4096,
) -> Iterator[Block]:  # fmt: skip
    """Rows of arrays that belong together.

    Args:
        raw: Folder of the raw files.
        where: An `.npz` file in it, or a folder of `.npy` files ("" for `raw` itself).
        features: Declared features; the columns of the blocks.
        columns: By feature, the array's name in the `.npz`, or the file's in the folder; as the feature's if not given.
        fill: By feature, what stands for NaN; a feature without is refused when there is one.
        rows: Most rows of a block.

    Yields:
        Blocks whose file is `where`, or the file of the first feature.

    Raises:
        FetchError: There's no such file.
        DataFormatError: A file isn't NumPy's, or is cut, damaged or pickled, or there are no rows.
        SchemaError: Arrays have different lengths, or don't fit the features.
    """
    fill = fill or {}
    check_fill(features, fill)
    with contextlib.ExitStack() as stack:
        streams, file = _open(raw, where, looked_for(features), dict(columns or {}), stack)
        lengths = {name: stream.shape[0] if stream.shape else 0 for name, stream in streams.items()}
        if len(set(lengths.values())) != 1:
            raise SchemaError("arrays have different numbers of rows", file=raw / where, got=lengths)
        for name, stream in streams.items():
            _check_shape(stream, features[name])
        count = next(iter(lengths.values()))
        if count == 0:
            raise NoRecordsError("0 records", file=raw / where)
        faults = Faults(file)
        for row in range(0, count, rows):
            n = min(rows, count - row)
            with _damage(raw / where):
                parts = {name: stream.take(n) for name, stream in streams.items()}
                if row + n == count:
                    for stream in streams.values():
                        stream.expect_end()
            made = {
                name: stand_in(feature, n)
                if left_out(name)
                else _as_feature(parts[name], feature, Place(faults, streams[name].name, row), fill.get(name))
                for name, feature in features.items()
            }
            if not faults:
                yield Block(made, file, row)
        faults.raise_if_any()


def _open(
    raw: Path, where: str, features: Mapping[str, Feature], columns: dict[str, str], stack: contextlib.ExitStack
) -> tuple[dict[str, Stream], str]:
    if (raw / where).is_dir():
        paths = {name: raw_files.find(raw / where, columns.get(name, f"{name}.npy")) for name in features}
        streams = {
            name: _stream(stack.enter_context(raw_files.opened(path)), str(path)) for name, path in paths.items()
        }
        return streams, next(iter(paths.values())).relative_to(raw).as_posix()
    path = raw_files.find(raw, where)
    with _damage(path):
        archive = stack.enter_context(zipfile.ZipFile(path))
    streams = {}
    for name in features:
        member = columns.get(name, name)
        if f"{member}.npy" not in archive.namelist():
            held = ", ".join(held.removesuffix(".npy") for held in archive.namelist())
            raise SchemaError(f"array {member!r} not found", file=path, field=name, got=held)
        with _damage(path):
            streams[name] = _stream(stack.enter_context(archive.open(f"{member}.npy")), f"{path}: {member}")
    return streams, where


def _stream(file: IO[bytes], name: str) -> Stream:
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = headers[version](file)
    except (ValueError, KeyError) as error:
        raise DataFormatError("not a NumPy file", file=name, got=error) from error
    if dtype.hasobject:
        raise DataFormatError("pickled objects are never loaded", file=name, got=dtype, cure="save numbers or texts")
    stream = Stream(name, dtype, shape, file)
    if fortran and len(shape) > 1:
        data = _exactly(file, math.prod(shape) * dtype.itemsize, name, 0)
        stream._whole = np.frombuffer(data, dtype).reshape(shape, order="F")
    return stream


def _exactly(file: IO[bytes], size: int, name: str, row: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        piece = file.read(min(PIECE, size - len(data)))
        if not piece:
            raise DataFormatError("NumPy file is truncated", file=name, row=f"{row} or later")
        data += piece
    return data


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataFormatError("damaged npz file", file=path, got=error) from error


def _check_shape(stream: Stream, feature: Feature) -> None:
    got = [n for n in stream.shape[1:] if n != 1]
    if got != [n for n in feature.shape if n != 1]:
        raise SchemaError(
            "array of another shape", file=stream.name, got=_shown(stream.shape[1:]), expected=_shown(feature.shape)
        )


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['n', *map(str, shape)])}]"


def _as_feature(part: np.ndarray, feature: Feature, place: Place, fill: float | None) -> np.ndarray:
    shape = (len(part), *feature.shape)
    per = math.prod(feature.shape)
    if part.dtype.kind in "US" or (feature.classes and part.dtype.kind in "biuf"):
        flat = np.ascontiguousarray(part).reshape(-1)
        flat = flat.astype(str).tolist() if part.dtype.kind in "US" else flat.astype(part.dtype.newbyteorder("="))
        one = Feature(feature.dtype, classes=feature.classes)
        return from_arrow(pa.array(flat), one, Place(place.faults, place.column, place.row, per), fill).reshape(shape)
    if part.dtype.kind not in "biuf":
        raise SchemaError("array of another type", file=place.column, got=part.dtype, expected=feature.dtype)
    return fit(np.ascontiguousarray(part), feature, Place(place.faults, place.column, place.row, per), fill).reshape(
        shape
    )
