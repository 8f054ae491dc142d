"""What one column of an example is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets.errors import SchemaError


@dataclass(frozen=True)
class Feature:
    """One column of an example.

    Attributes:
        dtype: NumPy name, such as "uint8" or "float32"; or "bytes" or "string", which are "uint8" of shape (None,).
        shape: Of one example, without the batch dimension; (None,) if every example has a length of its own. Such a
            feature is stored and validated but is in no batch: a model's shapes are fixed.
        low: Least value allowed, if any.
        high: Greatest value allowed, if any.
        classes: Names by index, for a label; the values are then 0 ... len(classes) - 1.
        of: "bytes" or "string" where the dtype said so.
    """

    dtype: str
    shape: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    classes: tuple[str, ...] = ()
    of: str = ""

    def __post_init__(self) -> None:
        if self.dtype in ("bytes", "string"):
            if self.shape or self.bounds != (None, None):
                raise SchemaError("texts and bytes have no shape, bounds or classes", got=self)
            for name, value in {"of": self.dtype, "dtype": "uint8", "shape": (None,)}.items():
                object.__setattr__(self, name, value)
        try:
            kind = np.dtype(self.dtype).kind
        except TypeError:
            kind = "none"
        if kind not in "iufb":
            raise SchemaError("a feature holds numbers", got=self.dtype, expected="an int, uint, float or bool dtype")
        if self.varies and self.classes:
            raise SchemaError("a feature of varying length has no classes", got=self)
        if not self.varies and any(type(n) is not int or n < 1 for n in self.shape):
            raise SchemaError("a feature's shape is made of whole numbers above 0, or is (None,)", got=self.shape)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Feature:
        """What `dataclasses.asdict` gave, after JSON has made lists of its tuples."""
        return cls(**{**value, "shape": tuple(value["shape"]), "classes": tuple(value["classes"])})

    @property
    def varies(self) -> bool:
        """Whether every example has a length of its own; a column is then a `Ragged`."""
        return self.shape == (None,)

    @property
    def is_number(self) -> bool:
        """Whether each example has one real number: a label to be estimated instead of classified."""
        return not self.shape and not self.classes and np.dtype(self.dtype).kind == "f"

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Least and greatest value allowed; None where there is no limit."""
        return (0, len(self.classes) - 1) if self.classes else (self.low, self.high)


def in_batches(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """The features that a batch can hold: those whose examples all have one shape."""
    return {name: feature for name, feature in features.items() if not feature.varies}
