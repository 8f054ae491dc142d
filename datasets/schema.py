"""What a dataset file is made of: where the raw files are, what an example is, how splits are made, the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.checks import check_float, check_int
from datasets.errors import ParameterError, SchemaError
from datasets.feature import Feature, in_batches
from datasets.gate import Gate
from datasets.nightly import Nightly, Predictions
from datasets.recipe import MOST_SEED, OPTIMIZERS, RECIPE_FIELDS, SCHEDULES, Recipe, check_for_classes, check_for_number
from datasets.splits import ByFraction, ByHash, ByTime, Files, Rows, Splits, columns_of, looks_at_one_row, names_of
from datasets.validation import Validation

__all__ = [
    "MOST_SEED", "OPTIMIZERS", "RECIPE_FIELDS", "SCHEDULES", "Block", "ByFraction", "ByHash", "ByTime", "Columns",
    "Dataset", "Feature", "Files", "Gate", "Nightly", "RawFile", "Reader", "Recipe", "Rows", "Source", "Splits",
    "Validation", "check_float", "check_int", "in_batches",
]  # fmt: skip

Columns = dict[str, np.ndarray]
"""One array a feature, all with the same leading dimension: [rows, *feature.shape]; a `Ragged` where lengths vary."""


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
class RawFile:
    """A raw file and the digest that it must have.

    Without a digest, a file in a local folder may change from run to run: its digest is taken when a run starts, and
    decides what has to run again. One that is downloaded over http is pinned by its first use in a store.

    Attributes:
        name: Of the file, without a compression suffix.
        sha256: Of the *uncompressed* content, so that a mirror that compresses anew passes; "" if it isn't pinned.
        bytes: Size of the uncompressed content; 0 if it isn't pinned.
        version: Of an object in a store that isn't pinned; found when a run starts.
    """

    name: str
    sha256: str = ""
    bytes: int = 0
    version: str = ""


@dataclass(frozen=True)
class Source:
    """Where raw files are.

    Attributes:
        files: All that `read` needs; or `pattern` says which.
        folder: Of local files, relative to `datasets/` or absolute; None if they are downloaded.
        mirrors: Base addresses, tried in this order; each holds every file under `name` + `suffix`. Besides http and
            https, what fsspec knows, such as s3://bucket/folder.
        suffix: Of a file's name at the mirrors, such as ".gz".
        pattern: Instead of `files`: every file of the folder, or of the one mirror, that matches is found when a run
            starts. "**" stands for all; "day-*.parquet" for some.
        unpack: Zip and tar files become the files in them, each in a folder named as the archive without its ending.
        generate: Instead of all above: writes the raw files into an empty folder, the same bytes every time.
    """

    files: tuple[RawFile, ...] = ()
    folder: str | None = None
    mirrors: tuple[str, ...] = ()
    suffix: str = ".gz"
    pattern: str | None = None
    unpack: bool = False
    generate: Callable[[Path], object] | None = None


@dataclass(frozen=True)
class Dataset:
    """One file under `datasets/`.

    Attributes:
        about: What the data is, in a sentence; shown on the run's page.
        source: Where the raw files are.
        read: From the folder of raw files to blocks.
        features: By name; the columns that `read` gives, no more and no fewer.
        inputs: Name of the feature that the model sees.
        label: Name of the feature that it predicts: one of its classes, or a number if it is a float without classes.
        splits: A rule by name, or one rule for all (see `datasets/splits.py`); "train" and "test" at least.
        recipe: How to train.
        by_file: Each raw file is converted by itself and once, and its shards are kept: for data that grows by files.
            `read` is then given a folder with one of the files at a time; splits look at a row or its file.
        validation: What is done about bad rows, leaks and drift.
        gate: What a model must fulfil to become the champion.
        slices: Columns by whose values the test split is also evaluated part by part.
        licence: Of the data, for the model's card.
        nightly: When `train/<name>` runs by itself while `make serve` is up; None for never.
        transforms: By feature, what the train split decides about how the model sees it (see `datasets/transforms.py`).
        predictions: What `predict/<name>` predicts by itself while `make serve` is up; None for nothing.
    """

    about: str
    source: Source
    read: Reader
    features: Mapping[str, Feature]
    inputs: str
    label: str
    splits: Splits
    recipe: Recipe = field(default_factory=Recipe)
    nightly: Nightly | None = None
    by_file: bool = False
    validation: Validation = field(default_factory=Validation)
    gate: Gate = field(default_factory=Gate)
    slices: tuple[str, ...] = ()
    licence: str = ""
    transforms: Mapping[str, Any] = field(default_factory=dict)
    predictions: Predictions | None = None

    def __post_init__(self) -> None:
        for role in (self.inputs, self.label):
            if role not in self.features and (role == self.label or role not in self.transforms):
                raise SchemaError(f"feature {role!r} isn't declared", got=", ".join(self.features), expected=role)
        if self.transforms:
            from datasets.transforms import check_transforms  # which is about datasets and features

            check_transforms(self)
        _check_label(self)
        weights, classes = self.recipe.class_weights, self.features[self.label].classes
        if isinstance(weights, tuple) and classes and len(weights) != len(classes):
            raise ParameterError(
                "class_weights has another length than the label has classes", parameter="class_weights",
                got=len(weights), expected=len(classes),
            )  # fmt: skip
        _check_lengths(self)
        _check_splits(self.splits, self.features)
        _check_slices(self.slices, self.features)
        if self.label not in self.transforms or self.features[self.label].is_number:  # else classes aren't known yet
            self.gate.check(len(classes), self.slices)
        if self.by_file and not looks_at_one_row(self.splits):
            raise SchemaError(
                "files can't be converted one by one: a row's split depends on the other rows", got=self.splits,
                expected="Files, ByHash or ByTime", cure="by_file=False, or another rule",
            )  # fmt: skip
        if unknown := set(self.validation.drift) - set(self.features):
            raise SchemaError(
                "drift of a feature that isn't declared", field=min(unknown), got=", ".join(self.features)
            )


def _check_label(dataset: Dataset) -> None:
    """A label has classes, or learns them from the train split, or is a number."""
    label = dataset.features[dataset.label]
    if label.classes or (dataset.label in dataset.transforms and not label.is_number):
        check_for_classes(dataset.recipe)
        return
    if not label.is_number:
        raise SchemaError(
            "the label has no classes, and isn't a number either", field=dataset.label,
            got=f"{label.dtype}{list(label.shape)}",
            cure='Feature(..., classes=(...)); Feature("float32") for a number to estimate',
        )  # fmt: skip
    check_for_number(dataset.recipe)
    if dataset.gate == Gate():  # nothing was asked for, and a number has no accuracy
        object.__setattr__(dataset, "gate", Gate(metric="rmse"))


def _check_slices(slices: tuple[str, ...], features: Mapping[str, Feature]) -> None:
    for name in slices:
        if name not in features:
            raise SchemaError(f"slices need feature {name!r}, which isn't declared", got=", ".join(features))
        feature = features[name]
        if feature.shape or np.dtype(feature.dtype).kind == "f":
            raise SchemaError(
                "slices are by one whole number each", field=name, got=f"{feature.dtype}{list(feature.shape)}",
                expected="an int or bool dtype of shape ()",
            )  # fmt: skip


def _check_lengths(dataset: Dataset) -> None:
    seen = {dataset.inputs, dataset.label, *dataset.transforms, *columns_of(dataset.splits)}
    for name in sorted(seen & set(dataset.features)):
        if dataset.features[name].varies:
            raise SchemaError(
                "no batch can be made of examples that have lengths of their own", field=name,
                got=dataset.features[name], expected="one shape for all examples",
                cure='Feature("uint8", (n,)) for text, which is then padded with zeros; lists are padded by the reader',
            )  # fmt: skip


def _check_splits(splits: Splits, features: Mapping[str, Feature]) -> None:
    names = names_of(splits)
    if missing := {"train", "test"} - set(names):
        raise SchemaError(
            "a dataset has a train and a test split", got=", ".join(names), expected=", ".join(sorted(missing))
        )
    for name, rule in splits.items() if isinstance(splits, Mapping) else ():
        if not isinstance(rule, Rows | Files):
            raise SchemaError(
                f"split {name!r} has a rule for all splits", got=rule, expected="Rows or Files",
                cure="splits=ByHash(...) itself, with a share for each split",
            )  # fmt: skip
    for name in columns_of(splits):
        if name not in features:
            raise SchemaError(f"splits need feature {name!r}, which isn't declared", got=", ".join(features))
        feature = features[name]
        if not isinstance(splits, ByTime) and np.dtype(feature.dtype).kind == "f":
            raise SchemaError(
                "rows are dealt out by whole numbers", field=name, got=feature.dtype, expected="an int dtype"
            )
        if not isinstance(splits, ByHash) and feature.shape:
            raise SchemaError("rows are dealt out by one number each", field=name, got=feature.shape, expected="()")
