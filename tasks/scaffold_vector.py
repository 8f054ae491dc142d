"""The part of a dataset file that puts the columns of a table side by side in one vector."""

from __future__ import annotations

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
        parts: Python for the parts of `inputs`, in their order.
        width: Of `inputs`.
        numbers: Columns that are standardised together.
        texts: Features that are texts as bytes.
    """

    read_as: dict[str, Feature] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    fill: dict[str, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    width: int = 0
    numbers: list[Column] = field(default_factory=list)
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

    def add(self, part: str, width: int) -> None:
        """Adds a part of the inputs."""
        self.parts.append(part)
        self.width += width

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example."""
        inputs = {"inputs": Feature("float32", (self.width,))} if self.parts else {}
        return {**inputs, **{name: self.read_as[name] for name in self.texts}, "label": self.read_as["label"]}

    def features_code(self) -> str:
        """The line of the dataset file that says so."""
        inputs = [f'"inputs": Feature("float32", ({self.width},))'] if self.parts else []
        others = [f"{quoted(name)}: COLUMNS[{quoted(name)}]" for name in [*self.texts, "label"]]
        return bracketed("    features={", [*inputs, *others], "},", 0, inside=4)

    def helpers(self) -> set[str]:
        """Functions of `datasets/vectors.py` that are used."""
        used = {name for name in ("one_hot", "standardised") if any(part.startswith(name) for part in self.parts)}
        return used | {"side_by_side"}

    def constants(self) -> str:
        """What stands in front of `read`."""
        made = features_text(self.read_as, "COLUMNS")
        if not self.numbers:
            return made
        rows = "".join(f"    {quoted(c.name)}: ({number(c.mean)}, {number(c.spread)}),\n" for c in self.numbers)
        return (
            f"NUMBERS = {{  # mean and standard deviation of each, measured when this file was written\n{rows}}}\n"
            f"MEAN, SCALE = zip(*NUMBERS.values(), strict=True)\n{made}"
        )


def vector_of(roles: Roles, target: Column, classes: tuple[str, ...]) -> Vector:
    """Numbers first, then those of which some are missing, lists, classes; texts stay beside them."""
    made = Vector(numbers=roles.numbers)
    if roles.numbers:
        made.read_as["numbers"] = Feature("float32", (len(roles.numbers),))
        made.columns["numbers"] = "tuple(NUMBERS)"
        made.add('standardised(block.columns["numbers"], MEAN, SCALE)', len(roles.numbers))
    for column in roles.filled:
        name = made.read(column, Feature("float32"))
        made.fill[name] = number(column.mean)
        made.add(f"standardised(block.columns[{quoted(name)}], {number(column.mean)}, {number(column.spread)})", 1)
    for column in roles.lists:
        length = column.length or 1
        made.add(f"block.columns[{quoted(made.read(column, Feature('float32', (length,))))}]", length)
    for column in roles.classes:
        names = tuple(sorted(column.values))
        made.add(
            f"one_hot(block, {quoted(made.read(column, Feature('int32', classes=names)))}, {len(names)})", len(names)
        )
    for column in roles.texts:
        made.texts.append(made.read(column, Feature("uint8", (-(-max(column.widest, 1) // 8) * 8,))))
    made.read(target, Feature("int32", classes=classes), "label")
    return made


def reading(table: Table, where: str, vector: Vector) -> str:
    """The body of `read`."""
    options = []
    for option, values in (("columns", vector.columns), ("fill", vector.fill)):
        if values:
            options.append(f"{option}={{{', '.join(f'{quoted(name)}: {value}' for name, value in values.items())}}}")
    if table.delimiter:
        options.append(f"delimiter={quoted(table.delimiter)}")
    arguments = ["raw", quoted(where), "COLUMNS", *options]
    if not vector.parts:
        return bracketed(f"yield from {table.kind}.blocks(", arguments, ")", 4)
    loop = bracketed(f"for block in {table.kind}.blocks(", arguments, "):", 4)
    inputs = bracketed("    inputs = side_by_side(", vector.parts, ")", 4, inside=4)
    others = [f"{quoted(name)}: block.columns[{quoted(name)}]" for name in [*vector.texts, "label"]]
    columns = bracketed("    columns = {", ['"inputs": inputs', *others], "}", 4, inside=4)
    return f"{loop}\n{inputs}\n{columns}\n    yield Block(columns, block.file, block.row)"
