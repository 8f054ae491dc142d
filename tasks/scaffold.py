"""A dataset file for data that someone has: looks at it once, writes down what it found, and guesses nothing later.

What it writes is plain source in the style of the other dataset files, to be read and changed. It is tried before it is
kept: the first rows must be read by it as it declares them.
"""

from __future__ import annotations

import keyword
import re
import types
from pathlib import Path
from typing import Any

from rich.console import Console

import datasets
from datasets.errors import ParameterError, SchemaError
from datasets.schema import Block, Dataset
from tasks.durable import write_bytes
from tasks.scaffold_look import look
from tasks.scaffold_text import record_line, render

RECORD = "@@record@@"


def scaffold(name: str, path: str, label: str | None = None) -> dict[str, Any]:
    """Writes `datasets/<name>.py` for the data at `path`.

    Args:
        name: Of the dataset.
        path: File or folder.
        label: Column or array that is to be predicted, where that can't be told.

    Returns:
        file, about, left_out (what the model won't see, and why), splits (what they go by, "" where that isn't in
        question), doubts (what may well not be meant so), next (the command to run).

    Raises:
        ParameterError: A name that is taken or can't be one, no such path, or input whose meaning can't be told.
        DataError: The data is damaged, or has values that can't be features.
    """
    target = datasets.FOLDER / f"{checked_name(name)}.py"
    place = (Path.cwd() / path).resolve()
    if not place.exists():
        raise ParameterError("there is nothing at this path", parameter="path", got=place)
    sketch = look(place, label)
    with sketch.opened() as folder:
        first = first_block(render(name, sketch, RECORD), name, folder)
    text = render(name, sketch, record_line(first, sketch))
    write_bytes(target, text.encode())
    return {
        "file": f"datasets/{target.name}",
        "about": sketch.about,
        "left_out": list(sketch.left_out),
        "splits": sketch.splits_why,
        "doubts": list(sketch.doubts),
        "next": f"python -m flows.train {name}",
    }


def checked_name(name: str) -> str:
    """The name, if a new dataset can have it.

    Raises:
        ParameterError: It can't.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name) or keyword.iskeyword(name):
        raise ParameterError(
            "this can't be the name of a dataset", parameter="name", got=repr(name),
            expected="small letters, digits and _, a letter first, no word of Python", cure=_like(name),
        )  # fmt: skip
    if (datasets.FOLDER / f"{name}.py").exists() or (datasets.FOLDER / name).exists():
        raise ParameterError(
            "this name is taken", parameter="name", got=name, file=f"datasets/{name}.py", cure="another name"
        )
    return name


def _like(name: str) -> str | None:
    near = re.sub(r"\W+", "_", name.lower()).strip("_")
    near = near if near[:1].isalpha() else f"data_{near}".strip("_")
    return near if re.fullmatch(r"[a-z][a-z0-9_]{0,59}", near) and not keyword.iskeyword(near) else None


def first_block(text: str, name: str, folder: Path) -> Block:
    """The first rows as a dataset file reads them.

    Raises:
        SchemaError: They aren't what the file declares.
        DataError: They can't be read.
    """
    module = types.ModuleType(f"datasets.{name}")
    exec(compile(text, f"datasets/{name}.py", "exec"), module.__dict__)  # noqa: S102 - our own text
    dataset: Dataset = module.__dict__["DATASET"]
    block = next(block for block in dataset.read(folder) if len(next(iter(block.columns.values()))))
    for feature_name, feature in dataset.features.items():
        column = block.columns[feature_name]
        if column.dtype != feature.dtype or column.shape[1:] != feature.shape:
            raise SchemaError(
                "the first rows aren't as the new file declares them", field=feature_name,
                got=f"{column.dtype} {column.shape[1:]}", expected=f"{feature.dtype} {feature.shape}",
            )  # fmt: skip
    return block


def show(made: dict[str, Any], console: Console) -> None:
    """Prints what was written and the next command."""
    console.print(f"wrote {made['file']}: {made['about']}", highlight=False, markup=False, soft_wrap=True)
    for what in made["left_out"]:
        console.print(f"  left out: {what}", highlight=False, markup=False, soft_wrap=True)
    for what in made["doubts"]:
        console.print(f"  is it meant so? {what}", highlight=False, markup=False, soft_wrap=True)
    if made["splits"]:
        console.print(f"  splits: {made['splits']}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"look it over, then: {made['next']}", highlight=False, markup=False, soft_wrap=True)
