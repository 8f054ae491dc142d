"""What a dataset file is made of: where the raw files are, what an example is, how splits are made, the recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import ParameterError, SchemaError, UnknownNameError

Columns = dict[str, np.ndarray]
"""One array a feature, all with the same leading dimension: [rows, *feature.shape]."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one raw file.

    Attributes:
        columns: One array a feature, [rows, *feature.shape].
        file: Name of the raw file, relative to the raw folder.
        row: Index of the first of these rows in that file, counted from 0.
    """

    columns: Columns
    file: str
    row: int


Reader = Callable[[Path], Iterator[Block]]
"""From a folder of raw files to blocks, in the same order every time."""


@dataclass(frozen=True)
class Feature:
    """One column of an example.

    Attributes:
        dtype: NumPy name, such as "uint8" or "float32".
        shape: Of one example, without the batch dimension.
        low: Least value allowed, if any.
        high: Greatest value allowed, if any.
        classes: Names by index, for a label; the values are then 0 ... len(classes) - 1.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    low: float | None = None
    high: float | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            kind = np.dtype(self.dtype).kind
        except TypeError:
            kind = "none"
        if kind not in "iufb":
            raise SchemaError("a feature holds numbers", got=self.dtype, expected="an int, uint, float or bool dtype")
        if any(type(n) is not int or n < 1 for n in self.shape):
            raise SchemaError("a feature's shape is made of whole numbers above 0", got=self.shape)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Least and greatest value allowed; None where there is no limit."""
        return (0, len(self.classes) - 1) if self.classes else (self.low, self.high)


@dataclass(frozen=True)
class RawFile:
    """A raw file and the digest that it must have.

    Attributes:
        name: Of the file, without a compression suffix.
        sha256: Of the *uncompressed* content, so that a mirror that compresses anew passes.
        bytes: Size of the uncompressed content.
    """

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Source:
    """Where raw files are.

    Attributes:
        files: Pinned files.
        folder: Of the files that ship with the project, relative to `datasets/`; None if they are downloaded.
        mirrors: Base addresses, tried in this order; each holds every file under `name` + `suffix`.
        suffix: Of a file's name at the mirrors, such as ".gz".
    """

    files: tuple[RawFile, ...]
    folder: str | None = None
    mirrors: tuple[str, ...] = ()
    suffix: str = ".gz"


@dataclass(frozen=True)
class Rows:
    """A split by position: rows start <= i < stop of what the reader gives, counted over all of its blocks."""

    start: int
    stop: int


@dataclass(frozen=True)
class Files:
    """A split by raw file: every row of the files whose name starts with `prefix`.

    Attributes:
        prefix: Of the raw files' names.
        count: Rows that there must be, where that is known beforehand.
    """

    prefix: str
    count: int | None = None


OPTIMIZERS = ("adam", "adamw", "lion", "sgd")
SCHEDULES = ("constant", "cosine", "one-cycle")
MOST_SEED = 2**32 - 2  # JAX takes 32 bits of a seed without a word about the rest; dropout uses the seed after it


@dataclass(frozen=True)
class Recipe:
    """How to train; every value here decides the weights, so every value is part of the fit stage's key.

    Attributes:
        model: File under `tasks/models/`.
        epochs: Passes over the train split.
        batch_size: Examples a step.
        learning_rate: Peak of the schedule.
        optimizer: One of OPTIMIZERS, by its optax name.
        schedule: One of SCHEDULES; "cosine" falls to 0 at the last step.
        warmup: Share of all steps during which the rate rises from 0, for "cosine" and "constant".
        weight_decay: For the kernels of adamw and lion; biases and BatchNorm scales are never decayed.
        clip_norm: Greatest global norm of the gradient; None for no clipping.
        label_smoothing: Share of the target that is spread over all classes.
        dropout: Rate of the model's dropout.
        augment: Applied to each train batch in this order (see `datasets/augment.py`).
        seed: Of the initial weights, the order of examples, dropout and augmentation.
    """

    model: str = "mlp"
    epochs: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    schedule: str = "cosine"
    warmup: float = 0.05
    weight_decay: float = 1e-4
    clip_norm: float | None = None
    label_smoothing: float = 0.0
    dropout: float = 0.0
    augment: tuple[Any, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {"epochs": 1, "batch_size": 1, "seed": 0}
        real = {"learning_rate": (0, math.inf), "warmup": (0, 1), "weight_decay": (0, math.inf),
                "label_smoothing": (0, 1), "dropout": (0, 1)}  # fmt: skip
        for name, least in whole.items():
            check_int(name, getattr(self, name), least)
        if self.seed > MOST_SEED:
            raise ParameterError(f"seed can't be {self.seed}", parameter="seed", expected=f"at most {MOST_SEED}")
        for name, (low, high) in real.items():
            check_float(name, getattr(self, name), low, high)
        if self.learning_rate == 0:
            raise ParameterError("a learning rate of 0 learns nothing", parameter="learning_rate", got=0)
        for kind, known in {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}.items():
            if getattr(self, kind) not in known:
                raise UnknownNameError.among(kind, str(getattr(self, kind)), known)
        if self.clip_norm is not None:
            check_float("clip_norm", self.clip_norm, 0, math.inf)
            if self.clip_norm == 0:
                raise ParameterError("a clip_norm of 0 learns nothing", parameter="clip_norm", got=0, cure="None")


def check_int(name: str, value: object, least: int) -> None:
    """Raises ParameterError unless `value` is a true int (no bool, no float) of at least `least`."""
    if type(value) is not int or value < least:
        raise ParameterError(
            f"{name} can't be {value!r}", parameter=name, got=f"{type(value).__name__} {value!r}",
            expected=f"a whole number of at least {least}",
        )  # fmt: skip


def check_float(name: str, value: object, low: float, high: float) -> None:
    """Raises ParameterError unless `value` is a finite number (no bool) with low <= value < high."""
    if type(value) not in (int, float) or not _fits(value, low, high):  # type: ignore[arg-type]
        raise ParameterError(
            f"{name} can't be {value!r}", parameter=name, got=f"{type(value).__name__} {value!r}",
            expected=f"a finite number, {low} <= {name}" + (f" < {high}" if math.isfinite(high) else ""),
        )  # fmt: skip


def _fits(value: float, low: float, high: float) -> bool:
    try:
        return math.isfinite(value) and low <= value < high
    except OverflowError:  # a whole number beyond every float
        return False


@dataclass(frozen=True)
class Dataset:
    """One file under `datasets/`.

    Attributes:
        about: What the data is, in a sentence; shown on the run's page.
        source: Where the raw files are.
        read: From the folder of raw files to blocks.
        features: By name; the columns that `read` gives, no more and no fewer.
        inputs: Name of the feature that the model sees.
        label: Name of the feature that it predicts.
        splits: By name; "train" and "test" at least.
        recipe: How to train.
    """

    about: str
    source: Source
    read: Reader
    features: Mapping[str, Feature]
    inputs: str
    label: str
    splits: Mapping[str, Rows | Files]
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        for role in (self.inputs, self.label):
            if role not in self.features:
                raise SchemaError(f"feature {role!r} isn't declared", got=", ".join(self.features), expected=role)
        if not self.features[self.label].classes:
            raise SchemaError("the label has no classes", field=self.label, cure="Feature(..., classes=(...))")
        missing = {"train", "test"} - set(self.splits)
        if missing:
            raise SchemaError("a dataset has a train and a test split", expected=", ".join(sorted(missing)))


RECIPE_FIELDS = tuple(f.name for f in fields(Recipe))
