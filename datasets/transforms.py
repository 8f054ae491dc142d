"""Changes to features whose numbers are learned from the train split: `transforms={"amount": Standardise()}`.

    features={"amount": Feature("float32"), "country": Feature("uint8", (24,)), "label": ...}
    transforms={
        "amount": (Impute(missing=-1.0), Standardise()),
        "country": (Vocabulary(), OneHot()),
        "inputs": SideBySide("amount", "country"),
    }
    inputs="inputs"

Records stay as the reader gave them. What is learned is learned once, from the train split alone, and the same stored
values are applied wherever the model sees examples: in training, evaluation, prediction and in an exported model. Each
rule below is written once for NumPy and JAX (`xp` is one of the two), in float32, so that all of these agree.

Rules: a number is seen as float32. Statistics are one a column of a feature of shape (n,), one a channel of
[height, width, channels]. A column that is constant in the train split becomes 0. A value that the train split doesn't
have gets index 0 of a vocabulary, "(other)"; a label that it doesn't have is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from datasets.checks import check_float
from datasets.errors import ParameterError, SchemaError
from datasets.learning import Function, Learner, Transform, Values, along_last, as_on_device, on_device, width_of
from datasets.medians import Median
from datasets.moments import Moments
from datasets.schema import Columns, Dataset, Feature
from datasets.splits import columns_of
from datasets.vocabulary import ClassIndex, Vocabulary

__all__ = [
    "ClassIndex", "Impute", "OneHot", "SideBySide", "Standardise", "Transform", "Vocabulary", "applied", "chain_of",
    "check_transforms", "inputs_as_one", "inputs_of",
]  # fmt: skip


@dataclass(frozen=True)
class Standardise:
    """Mean 0 and standard deviation 1: (x - mean) * scale in float32; a constant column becomes 0."""

    def learner(self, feature: Feature) -> Learner:
        """Exact mean and deviation, whatever the order of the rows."""
        return _Standards(width_of(feature))

    def gives(self, feature: Feature, values: Values) -> Feature:
        """The same shape in float32."""
        return Feature("float32", feature.shape)

    def function(self, feature: Feature, values: Values) -> Function:
        """One subtraction and one multiplication: NumPy and XLA round them alike."""
        mean, scale = (along_last(values[name], np.dtype("float32"), feature) for name in ("mean", "scale"))
        return lambda column, xp: (xp.asarray(column, xp.float32) - mean) * scale


class _Standards:
    def __init__(self, width: int) -> None:
        self._width, self._moments = width, Moments(width)

    def add(self, column: np.ndarray) -> None:
        self._moments.add(np.asarray(column, np.float32).reshape(-1, self._width))

    def end(self) -> Values:
        mean, std = self._moments.mean_and_std()
        with np.errstate(divide="ignore", over="ignore"):
            scale = (1 / std).astype(np.float32)
        constant = ~np.isfinite(scale)
        return {
            "mean": mean.astype(np.float32).tolist(), "scale": np.where(constant, 0, scale).tolist(),
            "std": std.tolist(), "constant": np.flatnonzero(constant).tolist(),
        }  # fmt: skip


@dataclass(frozen=True)
class Impute:
    """The median of the train split where a value is missing.

    Records hold no NaN, so a number stands for what is missing: `fill={"age": -1}` in the reader. Of an even number of
    values the median is the smaller one in the middle: a value that occurs.

    Attributes:
        missing: The number that stands for a missing value.
    """

    missing: float

    def __post_init__(self) -> None:
        check_float("missing", self.missing, -float("inf"), float("inf"))

    def learner(self, feature: Feature) -> Learner:
        """The exact median, in two passes and bounded memory."""
        return _Medians(feature, self.missing)

    def gives(self, feature: Feature, values: Values) -> Feature:
        """The feature as it was, in 32 bits."""
        return replace(feature, dtype=on_device(feature.dtype).name)

    def function(self, feature: Feature, values: Values) -> Function:
        """The medians in the place of missing values."""
        dtype = on_device(feature.dtype)
        fill, missing = along_last(values["median"], dtype, feature), dtype.type(self.missing)

        def apply(column: Any, xp: Any) -> Any:  # noqa: ANN401 - NumPy's or JAX's
            seen = as_on_device(column, xp)
            return xp.where(seen == missing, fill, seen)

        return apply


class _Medians:
    def __init__(self, feature: Feature, missing: float) -> None:
        dtype = on_device(feature.dtype)
        self._width, self._missing = width_of(feature), dtype.type(missing)
        self._median = Median(self._width, dtype)

    def add(self, column: np.ndarray) -> None:
        for component, values in enumerate(as_on_device(column, np).reshape(-1, self._width).T):
            self._median.add(component, values[values != self._missing])

    def end(self) -> Values | None:
        try:
            medians = self._median.end()
        except ValueError as error:
            raise SchemaError(
                "every value of the train split is missing",
                got=str(error),
                expected=f"some that aren't {self._missing}",
            ) from error
        return None if medians is None else {"median": medians.tolist()}


@dataclass(frozen=True)
class OneHot:
    """An index to float32 [classes], 1 at its place; after `Vocabulary`, or for a feature with declared classes."""

    def learner(self, feature: Feature) -> None:
        """Nothing to learn."""
        if not feature.classes or feature.shape:
            raise SchemaError(
                "only an index with classes has places", got=f"{feature.dtype}{list(feature.shape)}",
                cure="(Vocabulary(), OneHot())",
            )  # fmt: skip

    def gives(self, feature: Feature, values: Values) -> Feature:
        """A place a class."""
        return Feature("float32", (len(feature.classes),), 0, 1)

    def function(self, feature: Feature, values: Values) -> Function:
        """Compares with every place."""
        places = np.arange(len(feature.classes), dtype=np.int32)[None]
        return lambda column, xp: (xp.asarray(column, xp.int32)[:, None] == places).astype(xp.float32)


@dataclass(frozen=True)
class SideBySide:
    """Several features, as they are after their own transforms, as one float32 [columns]; they are gone afterwards.

    Attributes:
        features: Numbers of shape () or (n,), in this order.
    """

    features: tuple[str, ...]

    def __init__(self, *features: str) -> None:
        object.__setattr__(self, "features", features)

    def gives(self, features: Sequence[Feature]) -> Feature:
        """All their columns."""
        for name, feature in zip(self.features, features, strict=True):
            if len(feature.shape) > 1:
                raise SchemaError("only numbers lie side by side", field=name, got=list(feature.shape))
        return Feature("float32", (sum(feature.shape[0] if feature.shape else 1 for feature in features),))

    def function(self) -> Function:
        """Puts columns together."""

        def apply(columns: Sequence[Any], xp: Any) -> Any:  # noqa: ANN401
            wide = [column if column.ndim == 2 else column[:, None] for column in columns]
            return xp.concatenate([xp.asarray(column, xp.float32) for column in wide], axis=1)

        return apply


def chain_of(transform: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """One transform or several of a feature, in the order in which they are applied."""
    return transform if isinstance(transform, tuple) else (transform,)


def check_transforms(dataset: Dataset) -> None:
    """Raises ParameterError or SchemaError unless a dataset file's transforms can be those of its features."""
    joined = [name for t in dataset.transforms.values() if isinstance(t, SideBySide) for name in t.features]
    if twice := [name for name in joined if joined.count(name) > 1]:
        raise SchemaError("a feature lies side by side with others twice", field=twice[0])
    for name, transform in dataset.transforms.items():
        if isinstance(transform, SideBySide):
            if unknown := [one for one in transform.features if one not in dataset.features]:
                raise SchemaError("a feature to put side by side isn't declared", field=name, got=unknown[0])
            if not transform.features or name in dataset.features:
                raise SchemaError("columns side by side are a new feature of one or more", field=name)
            continue
        if name not in dataset.features:
            raise SchemaError(
                "a transform of a feature that isn't declared", field=name, got=", ".join(dataset.features)
            )
        for one in chain_of(transform):
            if not isinstance(one, Transform) or isinstance(one, type):
                raise ParameterError(
                    "this is no transform", field=name, got=repr(one), expected="such as Standardise()"
                )
            if name == dataset.label and dataset.features[name].is_number:
                if chain_of(transform) != (Standardise(),):  # which can be undone, so that answers are in its unit
                    raise SchemaError("a label that is a number can only be standardised", field=name, got=transform)
            elif isinstance(one, ClassIndex) != (name == dataset.label):
                raise SchemaError(
                    "ClassIndex is for the label, and nothing else is",
                    field=name,
                    got=repr(one),
                    expected=dataset.label,
                )
    if varying := [n for n in (*dataset.transforms, *joined) if n in dataset.features and dataset.features[n].varies]:
        raise SchemaError("a feature of varying length is in no batch", field=varying[0])
    if dataset.label in joined:
        raise SchemaError("the label can't be an input", field=dataset.label)
    if taken := {*dataset.transforms, *joined} & {*columns_of(dataset.splits), *dataset.slices} - {dataset.label}:
        raise SchemaError(
            "this feature decides splits or slices, so it stays as it is", field=min(taken),
            cure="let the reader give the column twice",
        )  # fmt: skip


def inputs_of(dataset: Dataset) -> tuple[str, ...]:
    """Names of the features of a record that the model's inputs are made from."""
    made = dataset.transforms.get(dataset.inputs)
    return made.features if isinstance(made, SideBySide) else (dataset.inputs,)


def inputs_as_one(columns: Columns, names: Sequence[str]) -> np.ndarray:
    """Several columns as one array of bytes [rows, n], a single one as it is: to compare inputs by content."""
    if len(names) == 1:
        return columns[names[0]]
    parts = [np.ascontiguousarray(columns[name]) for name in names]
    return np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)


def applied(
    steps: Sequence[tuple[str, Function, tuple[str, ...]]], columns: Mapping[str, Any], xp: Any  # noqa: ANN401
) -> dict[str, Any]:  # fmt: skip
    """Columns after some steps: the name of what each makes, its function, and what a SideBySide takes."""
    made = dict(columns)
    for name, function, takes in steps:
        if not takes:
            if name in made:  # no label where there is none to know
                made[name] = function(made[name], xp)
            continue
        made[name] = function([made[one] for one in takes], xp)
        for one in takes:
            made.pop(one)
    return made
