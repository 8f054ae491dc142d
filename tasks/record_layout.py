"""How the rows of some features lie in one record, and whether a block of rows fits them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.ragged import Ragged
from datasets.schema import Columns, Feature

LENGTH = np.dtype("<u4")
AT_ONCE = 64  # records


@dataclass(frozen=True)
class Layout:
    """How the rows of some features lie in a record.

    Attributes:
        names: Of the features of fixed shape, in the order of the record.
        dtypes: Theirs, little-endian.
        shapes: Theirs.
        ragged: Names, dtypes and kinds of the features whose examples have lengths of their own; they come after.
    """

    names: tuple[str, ...]
    dtypes: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[int, ...], ...]
    ragged: tuple[tuple[str, np.dtype[Any], str], ...] = ()

    @classmethod
    def of(cls, features: Mapping[str, Feature]) -> Layout:
        """The layout for these features; their order in the mapping doesn't matter."""
        if not features:
            raise SchemaError("a dataset has at least one feature")
        dtypes = {name: np.dtype(feature.dtype).newbyteorder("<") for name, feature in features.items()}
        names = tuple(sorted(name for name in features if not features[name].varies))
        ragged = tuple((name, dtypes[name], features[name].of) for name in sorted(features) if name not in names)
        return cls(
            names, tuple(dtypes[name] for name in names), tuple(tuple(features[name].shape) for name in names), ragged
        )

    @property
    def every(self) -> tuple[str, ...]:
        """All names."""
        return (*self.names, *(name for name, _, _ in self.ragged))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a row in each feature of fixed shape."""
        return tuple(d.itemsize * math.prod(s) for d, s in zip(self.dtypes, self.shapes, strict=True))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row, but for what varies in length."""
        return sum(self.widths)

    def check(self, columns: Columns, row: int) -> int:
        """Gives the number of rows of a block.

        Raises:
            SchemaError: A column is missing, unknown, or has another dtype, shape or length than it should; `row` is
                the split's index of the block's first row.
        """
        if set(columns) != set(self.every):
            missing, unknown = set(self.every) - set(columns), set(columns) - set(self.every)
            raise SchemaError(
                "a block has other columns than the dataset has features", row=row,
                missing=", ".join(sorted(missing)) or None, unknown=", ".join(sorted(unknown)) or None,
            )  # fmt: skip
        for name, dtype, shape in zip(self.names, self.dtypes, self.shapes, strict=True):
            values = columns[name]
            fits = isinstance(values, np.ndarray) and values.dtype == dtype and values.ndim
            if not fits or values.shape[1:] != shape:
                got = f"{getattr(values, 'dtype', type(values).__name__)} {list(getattr(values, 'shape', []))}"
                raise _other(name, got, f"{dtype} [rows{''.join(f', {n}' for n in shape)}]", row)
        for name, dtype, of in self.ragged:
            values = columns[name]
            if not isinstance(values, Ragged) or values.dtype != dtype or values.of != of:
                raise _other(name, repr(values)[:200], f"Ragged of {of or dtype}", row)
            if len(values) and values.lengths.max() > np.iinfo(LENGTH).max:
                raise _other(name, f"an example of {values.lengths.max()} values", "less than 2**32", row)
        first, *others = self.every
        for name in others:
            if len(columns[name]) != len(columns[first]):
                raise SchemaError(
                    "columns of one block differ in length", field=name, got=len(columns[name]),
                    expected=f"{len(columns[first])}, as {first}", row=row,
                )  # fmt: skip
        return len(columns[first])

    def encode(self, columns: Columns, start: int, stop: int) -> list[Any]:
        """Gives the rows start <= i < stop as pieces of one record; they may be views of the columns.

        Records grow by joining the pieces of each place: [a0 + a1, b0 + b1, ...] is the record of both.
        """
        pieces: list[Any] = [np.ascontiguousarray(columns[name][start:stop]) for name in self.names]
        for name, _, _ in self.ragged:
            some: Any = columns[name][start:stop]
            pieces += [some.lengths.astype(LENGTH), np.ascontiguousarray(some.values)]
        return pieces

    def records(self, columns: Columns, start: int, stop: int, rows: int) -> Iterator[bytes]:
        """Gives the rows start <= i < stop as whole records of `rows` rows, each copied once, into its record."""
        if self.ragged:
            for first in range(start, stop, rows):
                yield b"".join(self.encode(columns, first, first + rows))
            return
        # Slices of plain bytes: to slice arrays for each record costs as much as to copy it. Some at once, and never
        # so many that Python looks for garbage among them.
        flats = [np.ascontiguousarray(columns[name][start:stop]).reshape(-1).view(np.uint8).data for name in self.names]
        sizes = [rows * width for width in self.widths]
        count = (stop - start) // rows
        for first in range(0, count, AT_ONCE):
            some = range(first, min(first + AT_ONCE, count))
            parts = [
                [flat[at * size : (at + 1) * size] for at in some] for flat, size in zip(flats, sizes, strict=True)
            ]
            yield from map(b"".join, zip(*parts, strict=True))

    def decode(self, raw: bytes, rows: int) -> Columns:
        """Gives the rows of one record, as views of `raw`; the reverse of `encode`.

        Raises:
            ValueError: It isn't of so many rows.
        """
        self._check_length(raw, rows)
        columns: dict[str, Any] = {}
        at = 0
        for name, dtype, shape, width in zip(self.names, self.dtypes, self.shapes, self.widths, strict=True):
            columns[name] = np.frombuffer(raw, np.uint8, rows * width, at).view(dtype).reshape(rows, *shape)
            at += rows * width
        for name, dtype, of in self.ragged:
            lengths = np.frombuffer(raw, LENGTH, rows, at)
            at += lengths.nbytes
            values = np.frombuffer(raw, dtype, int(lengths.sum(dtype=np.int64)), at)
            at += values.nbytes
            columns[name] = Ragged.of_lengths(values, lengths, of)
        if at != len(raw):
            raise ValueError(f"{len(raw)} bytes instead of the {at} that its lengths say")
        return columns

    def put(self, raws: Sequence[bytes], rows: int, slots: Sequence[int], blocks: Columns) -> None:
        """Copies the features of fixed shape of some records to their places.

        Args:
            raws: Records, all of the same number of rows.
            rows: In each.
            slots: Of each record in `blocks`.
            blocks: [slots, at least `rows`, *shape] a feature.

        Raises:
            ValueError: One isn't of so many rows.
        """
        arrays = [blocks[name] for name in self.names]
        flat = [(a.reshape(-1).view(np.uint8).data, a.shape[1] * w) for a, w in zip(arrays, self.widths, strict=True)]
        lengths = [rows * width for width in self.widths]
        for raw, slot in zip(raws, slots, strict=True):
            self._check_length(raw, rows)
            view, at = memoryview(raw), 0
            for (column, size), length in zip(flat, lengths, strict=True):
                column[slot * size : slot * size + length] = view[at : at + length]
                at += length

    def _check_length(self, raw: bytes, rows: int) -> None:
        fixed = rows * self.row_bytes
        if len(raw) < fixed or (len(raw) > fixed and not self.ragged):
            raise ValueError(f"{len(raw)} bytes instead of {rows} rows of {self.row_bytes} bytes")


def _other(name: str, got: str, expected: str, row: int) -> SchemaError:
    return SchemaError("a column isn't what its feature says", field=name, got=got, expected=expected, row=row)


def joined(name: str, parts: list[Columns]) -> Any:  # noqa: ANN401 - an array, or a Ragged
    """A column of several blocks."""
    columns: list[Any] = [part[name] for part in parts]
    return Ragged.joined(columns) if isinstance(columns[0], Ragged) else np.concatenate(columns)
