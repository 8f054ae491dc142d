"""Columns whose examples have lengths of their own: texts, bytes, lists of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class Ragged:
    """All examples one after the other, and where each begins.

    Args:
        values: [total] numbers; of bytes and of text in UTF-8, uint8.
        offsets: int64 [rows + 1], from 0 to total, never falling.
        of: "bytes" or "string" where an example is one of these, "" where it is an array.
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray, of: str = "") -> None:
        self.values, self.offsets, self.of = values, np.asarray(offsets, np.int64), of
        if values.ndim != 1 or self.offsets.ndim != 1 or not len(self.offsets):
            raise ValueError(f"ragged values {values.shape} and offsets {self.offsets.shape} must be one-dimensional")
        if self.offsets[0] != 0 or self.offsets[-1] != len(values) or (np.diff(self.offsets) < 0).any():
            raise ValueError(f"offsets don't lead from 0 to {len(values)}")

    @classmethod
    def of_items(cls, items: Sequence[Any], dtype: str = "uint8", of: str = "") -> Ragged:
        """From one text, bytes or array an example."""
        raw = [item.encode() if isinstance(item, str) else item for item in items]
        parts = [np.frombuffer(item, np.uint8) if isinstance(item, bytes) else np.asarray(item, dtype) for item in raw]
        values = np.concatenate([np.zeros(0, dtype), *parts])
        return cls(values, np.cumsum([0, *map(len, parts)]), of)

    @classmethod
    def of_lengths(cls, values: np.ndarray, lengths: np.ndarray, of: str = "") -> Ragged:
        """From all values and the length of each example."""
        return cls(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), of)

    @classmethod
    def joined(cls, parts: Iterable[Ragged]) -> Ragged:
        """One column after the other; at least one."""
        every = list(parts)
        lengths = np.concatenate([part.lengths for part in every])
        return cls.of_lengths(np.concatenate([part.values for part in every]), lengths, every[0].of)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    @property
    def lengths(self) -> np.ndarray:
        """Of each example, int64 [rows]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Ragged({len(self)} x {self.of or self.dtype}, {len(self.values)} in all)"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ragged) and self.of == other.of and self.dtype == other.dtype
            and np.array_equal(self.offsets, other.offsets) and np.array_equal(self.values, other.values)
        )  # fmt: skip

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of an array

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401
        """One example for a number; a column for a slice without steps, or for an array of numbers."""
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                offsets = self.offsets[start : max(start, stop) + 1]
                return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0], self.of)
            at = np.arange(start, stop, step)
        if isinstance(at, np.ndarray):
            lengths = self.lengths[at]
            made = Ragged.of_lengths(np.zeros(int(lengths.sum()), self.dtype), lengths, self.of)
            within = np.arange(len(made.values)) - np.repeat(made.offsets[:-1], lengths)
            made.values[:] = self.values[np.repeat(self.offsets[:-1][at], lengths) + within]
            return made
        row = range(len(self))[at]
        item = self.values[self.offsets[row] : self.offsets[row + 1]]
        if self.of:
            return item.tobytes() if self.of == "bytes" else item.tobytes().decode()
        return item

    def rows_of(self, at: np.ndarray) -> np.ndarray:
        """The rows in which some values are, by their places among all values; sorted, each once."""
        return np.unique(np.searchsorted(self.offsets, at, side="right") - 1)
