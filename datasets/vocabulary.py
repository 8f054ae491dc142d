"""Values by their place: categories of an input, classes of a label, as the train split has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets.checks import check_int
from datasets.errors import SchemaError
from datasets.learning import Function, Learner, Values, as_on_device, on_device
from datasets.schema import Feature

OTHER = "(other)"
MOST_DISTINCT = 1_000_000


@dataclass(frozen=True)
class Vocabulary:
    """Whole numbers or text (uint8 [n], padded with zeros) to an index: 0 for all others, then by value.

    Attributes:
        most: Places besides that for others; the most frequent values get them, the lesser value at a tie.
        at_least: Times that a value must occur in the train split.
    """

    most: int = 10_000
    at_least: int = 1

    def __post_init__(self) -> None:
        check_int("most", self.most, 1)
        check_int("at_least", self.at_least, 1)

    def learner(self, feature: Feature) -> Learner:
        """Counts values."""
        return _Counts(feature, self.most, self.at_least)

    def gives(self, feature: Feature, values: Values) -> Feature:
        """Index int32; its classes are "(other)" and the values."""
        return Feature("int32", classes=(OTHER, *values["names"]))

    def function(self, feature: Feature, values: Values) -> Function:
        """Looks values up."""
        find = _finder(feature, values["known"])

        def apply(column: Any, xp: Any) -> Any:  # noqa: ANN401 - NumPy's or JAX's
            index, found = find(column, xp)
            return xp.where(found, index + 1, 0).astype(xp.int32)

        return apply


@dataclass(frozen=True)
class ClassIndex:
    """Of the label: whole numbers or text to 0, 1, ... in the order of the values in the train split.

    The values become the names of the classes. A label that the train split doesn't have is an error.
    """

    def learner(self, feature: Feature) -> Learner:
        """Counts values."""
        return _Counts(feature, MOST_DISTINCT, 1)

    def gives(self, feature: Feature, values: Values) -> Feature:
        """Index int32 with its classes."""
        return Feature("int32", classes=tuple(values["names"]))

    def function(self, feature: Feature, values: Values) -> Function:
        """Looks values up, in NumPy only: no label goes into a model."""
        find = _finder(feature, values["known"])

        def apply(column: np.ndarray, xp: Any) -> np.ndarray:  # noqa: ANN401
            index, found = find(column, xp)
            if not found.all():
                (name,) = _names(feature, column[np.flatnonzero(~found)[:1]])
                raise SchemaError(
                    "a label isn't a class of the train split", got=repr(name),
                    expected=", ".join(values["names"][:20]),
                    cure="more data, other splits, or leave these rows out",
                )  # fmt: skip
            return index.astype(np.int32)

        return apply


class _Counts:
    def __init__(self, feature: Feature, most: int, at_least: int) -> None:
        if np.dtype(feature.dtype).kind == "f" or (feature.shape and not _is_text(feature)):
            raise SchemaError(
                "this can't be looked up", got=f"{feature.dtype}{list(feature.shape)}",
                expected="one whole number, or text as uint8 [n]",
            )  # fmt: skip
        self._feature, self._most, self._at_least = feature, most, at_least
        self._counts: Counter[Any] = Counter()

    def add(self, column: np.ndarray) -> None:
        values, counts = np.unique(_keys(self._feature, column), return_counts=True)
        self._counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if len(self._counts) > MOST_DISTINCT:
            raise SchemaError(
                "too many different values", got=f"more than {MOST_DISTINCT}", cure="it looks like a number of the row"
            )

    def end(self) -> Values:
        often = [(value, count) for value, count in self._counts.items() if count >= self._at_least]
        kept = sorted(value for value, _ in sorted(often, key=lambda pair: (-pair[1], pair[0]))[: self._most])
        shown = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in kept]
        known = [value.hex() if isinstance(value, bytes) else value for value in kept]
        return {"known": known, "names": shown, "different": len(self._counts)}


def _is_text(feature: Feature) -> bool:
    return feature.dtype == "uint8" and len(feature.shape) == 1


def _keys(feature: Feature, column: np.ndarray) -> np.ndarray:
    if not _is_text(feature):
        return as_on_device(column, np).astype(np.int64)
    return np.ascontiguousarray(column).view(f"S{feature.shape[0]}").reshape(-1)


def _names(feature: Feature, column: np.ndarray) -> list[str]:
    keys = _keys(feature, column).tolist()
    return [key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key) for key in keys]


def _finder(feature: Feature, known: Sequence[Any]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A function that gives the place of each row's value among sorted known ones, and whether it is one of them."""
    if _is_text(feature):
        texts = np.array([bytes.fromhex(one) for one in known], f"S{feature.shape[0]}")
        return _text_finder(feature, texts)
    numbers = np.array(known, on_device(feature.dtype) if feature.dtype != "bool" else np.uint8)

    def find(column: Any, xp: Any) -> tuple[Any, Any]:  # noqa: ANN401
        column = column.astype(xp.uint8) if feature.dtype == "bool" else as_on_device(column, xp)
        table = xp.asarray(numbers)
        index = xp.minimum(xp.searchsorted(table, column), max(len(numbers) - 1, 0))
        return index, (table[index] == column) if len(numbers) else xp.zeros(column.shape, bool)

    return find


def _text_finder(feature: Feature, texts: np.ndarray) -> Callable[[Any, Any], tuple[Any, Any]]:
    letters = texts.view(np.uint8).reshape(len(texts), feature.shape[0])

    def find(column: Any, xp: Any) -> tuple[Any, Any]:  # noqa: ANN401
        if not len(texts):
            return xp.zeros(len(column), int), xp.zeros(len(column), bool)
        if xp is np:
            keys = _keys(feature, column)
            index = np.minimum(np.searchsorted(texts, keys), len(texts) - 1)
            return index, texts[index] == keys
        same = (column[:, None, :] == letters[None]).all(axis=2)  # JAX has no texts to search in
        return same.argmax(axis=1), same.any(axis=1)

    return find
