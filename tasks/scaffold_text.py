"""The text of a new dataset file, from a sketch of what was found."""

from __future__ import annotations

import json
import math
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from datasets.readers import archives
from datasets.schema import Block, Feature
from tasks.sources import archive_stem

WIDTH = 120


@dataclass
class Place:
    """Where the raw files are.

    Attributes:
        folder: That holds them.
        file: The one file, without ".gz"; None for all files of the folder.
        archive: Whether the file is a zip or tar.
        where: What the readers are asked for: a file or a folder, relative to the raw folder.
    """

    folder: Path
    file: str | None = None
    archive: bool = False
    where: str = ""

    def source(self) -> str:
        """The line of the dataset file that says so."""
        folder = self.folder
        if folder.is_relative_to(datasets.FOLDER):
            folder = folder.relative_to(datasets.FOLDER)
        files = 'pattern="**"' if self.file is None else f"files=(RawFile({quoted(self.file)}),)"
        parts = [f"folder={quoted(str(folder))}", files, *(["unpack=True"] if self.archive else [])]
        return bracketed("    source=Source(", parts, "),", 0, inside=4)

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """The raw folder as a reader will see it; an archive is unpacked into a temporary one."""
        if not self.archive or self.file is None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            archives.extract(self.folder / self.file, Path(folder) / archive_stem(self.file))
            yield Path(folder)


@dataclass
class Sketch:
    """All that a dataset file says, found by looking at the data.

    Attributes:
        about: A sentence without full stop.
        place: Of the raw files.
        features: By name.
        features_code: The line of the dataset file that says so.
        inputs: Name of the feature that the model sees.
        label: Name of the feature that it predicts.
        read: Body of `read`, Python.
        reads: What `read` gives, a sentence.
        rows: How many examples there are.
        counts: Examples a class; none for a number.
        imports: Names by module, besides those of every dataset file.
        constants: Python between the imports and `read`.
        rules: Sentences for the docstring: what is made of the values, how classes are ordered.
        left_out: What the model doesn't see, and why.
        splits_why: What the splits go by, a line; "" where they speak for themselves.
        doubts: What may well not be meant so.
        splits: Python; None for 80 % and 20 %, drawn within each class if there are classes.
        model: Name of a model.
        equal_rows: Whether the same inputs may well occur twice.
        transforms: The line of the dataset file that says what is done with features; "" for nothing.
    """

    about: str
    place: Place
    features: dict[str, Feature]
    features_code: str
    inputs: str
    label: str
    read: str
    reads: str
    rows: int
    counts: dict[str, int]
    imports: dict[str, set[str]] = field(default_factory=dict)
    constants: str = ""
    rules: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    splits: str | None = None
    splits_why: str = ""
    doubts: list[str] = field(default_factory=list)
    model: str = "mlp"
    equal_rows: bool = False
    transforms: str = ""

    def opened(self) -> Any:  # noqa: ANN401 - a context manager
        """See `Place.opened`."""
        return self.place.opened()


def render(name: str, sketch: Sketch, record: str) -> str:
    """The text of `datasets/<name>.py`."""
    imports = {
        "collections.abc": {"Iterator"}, "pathlib": {"Path"},
        "datasets.schema": {"Block", "Dataset", "Feature", "Recipe", "Source"},
    }  # fmt: skip
    if sketch.place.file is not None:
        imports["datasets.schema"].add("RawFile")
    if sketch.splits is None:
        imports.setdefault("datasets.splits", set()).add("ByFraction")
    if sketch.equal_rows:
        imports["datasets.schema"].add("Validation")
    for module, names in sketch.imports.items():
        imports.setdefault(module, set()).update(names)
    sentences = [f"{sketch.about}.", *sketch.rules]
    if sketch.left_out:
        sentences.append(f"Left out: {'; '.join(sketch.left_out)}.")
    if sketch.doubts:
        sentences.append(f"Is it meant so? {'; '.join(sketch.doubts)}.")
    paragraphs = [*sentences, f"Written by flows.new from {sketch.rows:,} examples.", record]
    docstring = "\n\n".join(filled(escaped(paragraph)) for paragraph in paragraphs)
    stratify = f", stratify={quoted(sketch.label)}" if sketch.counts else ""
    splits = sketch.splits or f'ByFraction({{"train": 0.8, "test": 0.2}}, seed=0{stratify})'
    validation = (
        '    validation=Validation(leaks="warn"),  # rows that are equal by chance\n' if sketch.equal_rows else ""
    )
    return (
        f'"""{docstring}\n"""\n\nfrom __future__ import annotations\n\n{import_lines(imports)}\n\n'
        f"{sketch.constants}\n\n"
        f"def read(raw: Path) -> Iterator[Block]:\n"
        f'    """{escaped(sketch.reads)}"""\n{textwrap.indent(sketch.read.rstrip(), "    ")}\n\n\n'
        f"DATASET = Dataset(\n"
        f"    about={quoted(sketch.about)},\n"
        f"{sketch.place.source()}\n"
        f"    read=read,\n"
        f"{sketch.features_code}\n"
        + (f"{sketch.transforms}\n" if sketch.transforms else "")
        + f"    inputs={quoted(sketch.inputs)},\n"
        f"    label={quoted(sketch.label)},\n"
        + (f"{why}\n" if (why := filled_comment(sketch.splits_why)) else "")
        + f"    splits={splits},\n"
        f"    recipe={recipe_text(sketch)},\n"
        f"{validation})\n"
    ).replace("\n\n\n\n\n", "\n\n\n")


def recipe_text(sketch: Sketch) -> str:
    """A recipe of about a thousand steps, with batches that a small dataset has several of."""
    train = max(1, round(0.8 * sketch.rows))
    batch = 2 ** max(0, min(7, int(math.log2(max(1, train // 8)))))
    epochs = max(5, min(30, math.ceil(1000 / max(1, train // batch))))
    uneven = max(sketch.counts.values(), default=0) > 3 * min(sketch.counts.values(), default=0)
    options = ', class_weights="balanced"' if uneven else ""
    options += ", dropout=0.3" if sketch.model == "cnn" else ""
    return f"Recipe(model={quoted(sketch.model)}, epochs={epochs}, batch_size={batch}, learning_rate=1e-3{options})"


def record_line(block: Block, sketch: Sketch) -> str:
    """Record 0 in words: what each feature holds."""
    parts = []
    for name, feature in sketch.features.items():
        value = block.columns[name][0]
        if feature.classes:
            parts.append(f"{name} {int(value)} ({feature.classes[int(value)]})")
        elif value.size == 1:
            parts.append(f"{name} {value.item():.6g}")
        elif value.size <= 12 and feature.dtype != "uint8":
            parts.append(
                f"{name} {feature.dtype} [{', '.join(f'{number:.4g}' for number in value.reshape(-1).tolist())}]"
            )
        else:
            total = value.sum(dtype=np.float64)
            parts.append(f"{name} {feature.dtype} {list(feature.shape)} with a sum of {total:,.6g}")
    return f"Record 0 ({block.file}, row {block.row}): {'; '.join(parts)}."


def features_text(features: dict[str, Feature], name: str) -> str:
    """A constant with features, as Python."""
    lines = [f"    {quoted(key)}: {feature_text(feature)}," for key, feature in features.items()]
    skip = "  # fmt: skip" if any("\n" in line for line in lines) else ""
    return f"{name} = {{\n" + "\n".join(lines) + f"\n}}{skip}\n"


def feature_text(feature: Feature) -> str:
    """A feature as Python; many classes stand on lines of their own, as many on each as fit."""
    shape = f", {feature.shape!r}" if feature.shape else ""
    names = [quoted(name) for name in feature.classes]
    classes = f", classes=({', '.join(names)}{',' if len(names) == 1 else ''})" if names else ""
    if len(classes) > WIDTH - 50:
        rows = textwrap.wrap(", ".join(name.replace(" ", "\0") for name in names), WIDTH - 12, break_long_words=False,
                             break_on_hyphens=False)  # fmt: skip
        classes = ", classes=(\n" + "\n".join(f"        {row}" for row in rows).replace("\0", " ") + ",\n    )"
    return f"Feature({quoted(feature.dtype)}{shape}{classes})"


def bracketed(start: str, items: list[str], end: str, indent: int, inside: int = 0) -> str:
    """Items in brackets as the formatter of the house lays them out.

    Args:
        start: Before the items, with the opening bracket; its own indent is `inside`.
        items: Python expressions.
        end: The closing bracket and what follows.
        indent: That is added to the whole later.
        inside: Of `start` within the text.
    """
    line = f"{start}{', '.join(items)}{end}"
    if len(line) + indent <= WIDTH:
        return line
    pad = " " * inside
    line = f"{pad}    {', '.join(items)}"
    if len(line) + indent <= WIDTH:
        return f"{start}\n{line}\n{pad}{end}"
    return f"{start}\n" + "".join(f"{pad}    {item},\n" for item in items) + f"{pad}{end}"


def import_lines(imports: dict[str, set[str]]) -> str:
    """Imports in the order of the house: standard library, NumPy, ours."""
    groups: list[list[str]] = [[], [], []]
    for module, names in sorted(imports.items()):
        line = f"from {module} import {', '.join(sorted(names))}" if names else f"import {module}"
        groups[2 if module.startswith("datasets") else 1 if module.startswith("numpy") else 0].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group)


def number(value: float) -> str:
    """A number as Python, with four digits."""
    return repr(float(f"{value:.4g}"))


def quoted(text: str) -> str:
    """A text as Python, in double quotes, also if it isn't UTF-8."""
    return json.dumps(text)


def escaped(text: str) -> str:
    """A text that can stand in a docstring: no quotes that end it, no backslashes, nothing that can't be written."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else " " for c in plain).replace("\\", "/").replace('"""', "'''")


def filled_comment(text: str) -> str:
    """A comment within the brackets of a dataset, in lines of the house's width."""
    return textwrap.indent("\n".join(textwrap.wrap(escaped(text), WIDTH - 6, break_long_words=False)), "    # ")


def filled(text: str) -> str:
    """A paragraph in lines of the house's width."""
    return "\n".join(textwrap.wrap(text, WIDTH - 3, break_long_words=False, break_on_hyphens=False))
