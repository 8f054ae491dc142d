"""One file a dataset; a file that defines `DATASET` at its top level is one, and nothing else needs to know."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from datasets.errors import SchemaError, UnknownNameError
from datasets.schema import Dataset

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the dataset files, sorted. Only reads their text: a file that can't be imported hides no other."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if _DEFINES.search(b"\n" + path.read_bytes()))


def load(name: str) -> Dataset:
    """The `DATASET` of `datasets/<name>.py`.

    Raises:
        UnknownNameError: There is no such file; the nearest names are given.
        SchemaError: The file's `DATASET` isn't a Dataset.
    """
    known = names()
    if name not in known:
        raise UnknownNameError.among("dataset", name, known)
    dataset = getattr(importlib.import_module(f"datasets.{name}"), "DATASET", None)
    if not isinstance(dataset, Dataset):
        raise SchemaError(
            "DATASET isn't a Dataset",
            file=f"datasets/{name}.py",
            got=type(dataset).__name__,
            expected="Dataset",
        )
    return dataset


_DEFINES = re.compile(rb"\nDATASET\s*[:=]")  # begins with a text, which is found many times as fast as a line's start
