"""How the rows of some features lie in one record, and whether a block of rows fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets.errors import SchemaError
from datasets.schema import Columns, Feature


@dataclass(frozen=True)
class Layout:
    """How the rows of some features lie in a record."""

    names: tuple[str, ...]
    dtypes: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, features: Mapping[str, Feature]) -> Layout:
        """The layout for these features; their order in the mapping doesn't matter."""
        if not features:
            raise SchemaError("a dataset has at least one feature")
        names = tuple(sorted(features))
        dtypes = tuple(np.dtype(features[name].dtype).newbyteorder("<") for name in names)
        return cls(names, dtypes, tuple(tuple(features[name].shape) for name in names))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(d.itemsize * int(np.prod(s, dtype=np.int64)) for d, s in zip(self.dtypes, self.shapes, strict=True))

    def check(self, columns: Columns, row: int) -> int:
        """Gives the number of rows of a block.

        Raises:
            SchemaError: A column is missing, unknown, or has another dtype, shape or length than it should; `row` is
                the split's index of the block's first row.
        """
        if set(columns) != set(self.names):
            missing, unknown = set(self.names) - set(columns), set(columns) - set(self.names)
            raise SchemaError(
                "a block has other columns than the dataset has features", row=row,
                missing=", ".join(sorted(missing)) or None, unknown=", ".join(sorted(unknown)) or None,
            )  # fmt: skip
        length = None
        for name, dtype, shape in zip(self.names, self.dtypes, self.shapes, strict=True):
            values = columns[name]
            got = f"{getattr(values, 'dtype', type(values).__name__)} {list(getattr(values, 'shape', []))}"
            wanted = f"{dtype} [rows{''.join(f', {n}' for n in shape)}]"
            if (
                not isinstance(values, np.ndarray)
                or values.dtype != dtype
                or values.shape[1:] != shape
                or not values.ndim
            ):
                raise SchemaError("a column isn't what its feature says", field=name, got=got, expected=wanted, row=row)
            length = len(values) if length is None else length
            if len(values) != length:
                raise SchemaError(
                    "columns of one block differ in length", field=name, got=len(values),
                    expected=f"{length}, as {self.names[0]}", row=row,
                )  # fmt: skip
        return length or 0

    def encode(self, columns: Columns, start: int, stop: int) -> list[bytes]:
        """Gives the rows start <= i < stop as pieces of one record."""
        return [columns[name][start:stop].tobytes() for name in self.names]

    def decode(self, raw: bytes) -> tuple[int, Columns]:
        """Gives the rows of one record, as views of `raw`; the reverse of `encode`."""
        rows, rest = divmod(len(raw), self.row_bytes)
        if rest:
            raise ValueError(f"{len(raw)} bytes aren't a whole number of rows of {self.row_bytes} bytes")
        columns, at = {}, 0
        for name, dtype, shape in zip(self.names, self.dtypes, self.shapes, strict=True):
            count = rows * int(np.prod(shape, dtype=np.int64))
            columns[name] = np.frombuffer(raw, dtype, count, at).reshape(rows, *shape)
            at += count * dtype.itemsize
        return rows, columns
