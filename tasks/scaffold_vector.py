"""The part of a dataset file that says how the columns of a table become the vector that the model sees."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from datasets.schema import Feature
from tasks.scaffold_columns import Column, Table
from tasks.scaffold_text import bracketed, features_text, number, quoted

if TYPE_CHECKING:
    from tasks.scaffold_tables import Roles


@dataclass
class Vector:
    """What of a table is read as what, and how the inputs are made of it.

    Attributes:
        read_as: Features that the reader gives.
        columns: Python for the column of those that aren't named as it is.
        fill: Python for the values that stand for missing ones.
        transforms: Python for what is done with each before the model sees it.
        joined: Features that lie side by side in `inputs`, in their order.
        width: Of `inputs`.
        texts: Features that are texts as bytes.
    """

    read_as: dict[str, Feature] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    fill: dict[str, str] = field(default_factory=dict)
    transforms: dict[str, str] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    width: int = 0
    texts: list[str] = field(default_factory=list)

    def read(self, column: Column, feature: Feature, name: str | None = None) -> str:
        """Adds a column that is read as a feature; gives the feature's name, free of others."""
        free = name or column.name
        while name is None and (free in self.read_as or free in ("inputs", "label", "numbers")):
            free = f"{free}_column"
        self.read_as[free] = feature
        if free != column.name:
            self.columns[free] = quoted(column.name)
        return free

    def join(self, name: str, width: int, transform: str = "") -> None:
        """Adds a feature to the inputs."""
        self.joined.append(name)
        self.width += width
        if transform:
            self.transforms[name] = transform

    def transforms_code(self) -> str:
        """The line of the dataset file that says so."""
        parts = [f"{quoted(name)}: {transform}" for name, transform in self.transforms.items()]
        if self.joined:
            parts.append(f'"inputs": SideBySide({", ".join(map(quoted, self.joined))})')
        return bracketed("    transforms={", parts, "},", 0, inside=4)

    def helpers(self) -> set[str]:
        """Transforms that are used."""
        used = {"Impute", "OneHot", "Standardise"}
        joins = {"SideBySide"} if self.joined else set()
        return {name for name in used if any(name in one for one in self.transforms.values())} | joins

    def constants(self) -> str:
        """What stands in front of `read`."""
        return features_text(self.read_as, "COLUMNS")


def vector_of(roles: Roles, target: Column, classes: tuple[str, ...]) -> Vector:
    """Numbers first, then those of which some are missing, lists, classes; texts stay beside them.

    A label without classes is a number.
    """
    made = Vector()
    if roles.numbers:
        count = len(roles.numbers)
        made.read_as["numbers"] = Feature("float32", (count,))
        names = ", ".join(quoted(column.name) for column in roles.numbers)
        made.columns["numbers"] = f"({names},)" if count == 1 else f"({names})"
        made.join("numbers", count, "Standardise()")
    for column in roles.filled:
        name, missing = made.read(column, Feature("float32")), number(below(column.low))
        made.fill[name] = missing
        made.join(name, 1, f"(Impute(missing={missing}), Standardise())")
    for column in roles.lists:
        length = column.length or 1
        made.join(made.read(column, Feature("float32", (length,))), length)
    for column in roles.classes:
        names = tuple(sorted(column.values))
        made.join(made.read(column, Feature("int32", classes=names)), len(names), "OneHot()")
    for column in roles.texts:
        made.texts.append(made.read(column, Feature("uint8", (-(-max(column.widest, 1) // 8) * 8,))))
    made.read(target, Feature("int32", classes=classes) if classes else Feature("float32"), "label")
    if not classes:
        made.transforms["label"] = "Standardise()"
    return made


def below(low: float) -> float:
    """A number that can stand for a missing value: less than all that are there, also with four digits."""
    return -1.0 if low >= 0 else -(10.0 ** (math.floor(math.log10(-low)) + 1))


def reading(table: Table, where: str, vector: Vector, times: tuple[str, ...] = ()) -> str:
    """The body of `read`; `times` are columns of times that are written as text."""
    options = []
    for option, values in (("columns", vector.columns), ("fill", vector.fill)):
        if values:
            options.append(f"{option}={{{', '.join(f'{quoted(name)}: {value}' for name, value in values.items())}}}")
    options += [f"times=({', '.join(map(quoted, times))},)"] if times else []
    if table.delimiter:
        options.append(f"delimiter={quoted(table.delimiter)}")
    return bracketed(f"yield from {table.kind}.blocks(", ["raw", quoted(where), "COLUMNS", *options], ")", 4)
