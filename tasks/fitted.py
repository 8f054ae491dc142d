"""Transforms with what they learned, as JSON beside the weights; and rows as the model sees them.

There is one way from a record to what a model sees, `Fitted.apply`: training, evaluation, prediction and an exported
model go through it with the same stored values.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from datasets.errors import ArtifactDamaged
from datasets.schema import Columns, Dataset, Feature, in_batches
from datasets.transforms import SideBySide, applied
from tasks.durable import read_json, write_json

TRANSFORMS = "transforms.json"
FORMAT = 1


class Rows(Protocol):
    """Rows of a split by number."""

    @property
    def features(self) -> Mapping[str, Feature]:
        """Columns that `read` gives."""
        ...

    @property
    def digest(self) -> str:
        """The same for every cut of the same rows into shards."""
        ...

    def __len__(self) -> int: ...

    def read(self, ids: np.ndarray) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], as fresh arrays."""
        ...


@dataclass(frozen=True)
class Step:
    """One transform of one feature.

    Attributes:
        name: Of the feature that it makes.
        transform: As the dataset file has it.
        values: What it learned, as JSON.
        gives: What the feature is afterwards.
    """

    name: str
    transform: Any
    values: dict[str, Any]
    gives: Feature

    @property
    def takes(self) -> tuple[str, ...]:
        """The features that it puts side by side, if it does."""
        return self.transform.features if isinstance(self.transform, SideBySide) else ()


@dataclass(frozen=True)
class Fitted:
    """Transforms in the order in which they are applied.

    Attributes:
        takes: The features of a record.
        steps: May be none.
    """

    takes: Mapping[str, Feature]
    steps: tuple[Step, ...] = ()

    @property
    def gives(self) -> dict[str, Feature]:
        """The features that a model's batch holds."""
        return self.after(len(self.steps))

    def after(self, count: int) -> dict[str, Feature]:
        """The features after the first `count` steps."""
        made = dict(self.takes)
        for step in self.steps[:count]:
            for name in step.takes:
                made.pop(name)
            made[step.name] = step.gives
        return made

    def apply(self, columns: Mapping[str, Any], xp: Any = np) -> dict[str, Any]:  # noqa: ANN401
        """Columns of records as the model sees them.

        Args:
            columns: [rows, *shape] each; features that no input is made from may be missing.
            xp: NumPy, or `jax.numpy` inside of a traced function.

        Raises:
            SchemaError: A label isn't one of the train split's classes.
        """
        return applied(self._functions, columns, xp)

    @cached_property
    def _functions(self) -> list[tuple[str, Any, tuple[str, ...]]]:
        made = []
        for i, step in enumerate(self.steps):
            taken = step.takes
            function = (
                step.transform.function() if taken else step.transform.function(self.after(i)[step.name], step.values)
            )
            made.append((step.name, function, taken))
        return made

    def dataset(self, dataset: Dataset) -> Dataset:
        """A dataset whose features are those that the model sees."""
        return replace(dataset, features=self.gives, transforms={})

    @cached_property
    def digest(self) -> str:
        """SHA-256 over what decides the values."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True, allow_nan=False).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As JSON; `from_json` is the way back."""
        return {
            "format": FORMAT,
            "takes": {name: asdict(feature) for name, feature in self.takes.items()},
            "order": list(self.takes),
            "steps": [
                {
                    "feature": step.name,
                    "transform": f"{type(step.transform).__module__}:{type(step.transform).__qualname__}",
                    "options": asdict(step.transform), "values": deepcopy(step.values), "gives": asdict(step.gives),
                }
                for step in self.steps
            ],
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Fitted:
        """What `to_json` gave.

        Raises:
            ValueError, KeyError, TypeError: It is something else.
            ImportError, AttributeError: A transform's class is gone.
        """
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']}, expected {FORMAT}")
        steps = [
            Step(
                row["feature"],
                _transform(row["transform"], row["options"]),
                row["values"],
                Feature.from_json(row["gives"]),
            )
            for row in value["steps"]
        ]
        return cls({name: Feature.from_json(value["takes"][name]) for name in value["order"]}, tuple(steps))

    def __reduce__(self) -> tuple[Any, ...]:  # functions don't go to Grain's workers; JSON does
        return Fitted.from_json, (self.to_json(),)


def _transform(name: str, options: dict[str, Any]) -> Any:  # noqa: ANN401
    module, _, kind = name.partition(":")
    if module.split(".")[0] != "datasets":
        raise ValueError(f"{name} is no transform of a dataset file")
    made = getattr(importlib.import_module(module), kind)
    if made is SideBySide:
        return SideBySide(*options["features"])
    return made(**{f.name: _tuples(options[f.name]) for f in fields(made)})


def _tuples(value: Any) -> Any:  # noqa: ANN401 - JSON has lists only
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def unit_of(fitted: Fitted | None, label: str) -> tuple[float, float] | None:
    """Mean and standard deviation by which a label that is a number was standardised; None if it was not."""
    steps = () if fitted is None else fitted.steps
    values = next((step.values for step in steps if step.name == label and "std" in step.values), None)
    return None if values is None else (values["mean"][0], values["std"][0])


def write_fitted(folder: Path, fitted: Fitted | None) -> None:
    """Puts `transforms.json` into a folder, if there is anything to put there."""
    if fitted is not None:
        write_json(folder / TRANSFORMS, fitted.to_json())


def read_fitted(folder: Path) -> Fitted | None:
    """The transforms in a folder; None when there are none.

    Raises:
        ArtifactDamaged: The file can't be read, or a transform's code is gone.
    """
    path = folder / TRANSFORMS
    if not path.is_file():
        return None
    try:
        return Fitted.from_json(read_json(path))
    except (ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise ArtifactDamaged(
            "fitted transforms can't be read", file=path, reason=f"{type(error).__name__}: {error}",
            cure="train again with today's code",
        ) from error  # fmt: skip


class Transformed:
    """The rows of a split as the model sees them; batches are transformed whole.

    Args:
        rows: As they are in the records.
        fitted: What is done with them.
    """

    def __init__(self, rows: Rows, fitted: Fitted) -> None:
        self.rows, self.fitted = rows, fitted
        self.features = in_batches(fitted.gives)
        self.digest = hashlib.sha256(f"{rows.digest} {fitted.digest}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Transformed({self.rows!r}, {self.fitted.digest[:12]})"

    def read(self, ids: np.ndarray) -> Columns:
        """Gives some rows, in the order of `ids` (int64 [N]), as fresh arrays [N, *feature.shape]."""
        return self.fitted.apply(self.rows.read(ids))
