"""What the tests of the table readers share: files written and read in one go, and errors held to their facts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.errors import GristmillError
from datasets.readers import delimited, jsonl
from datasets.schema import Block, Columns, Feature

FLOAT, WHOLE = Feature("float32"), Feature("int64")
LABEL = Feature("int32", classes=("0", "1"))


def together(blocks: list[Block]) -> Columns:
    return {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}


def csv(folder: Path, data: str | bytes, features: dict[str, Feature], *, name: str = "t.csv", **more: Any) -> Columns:
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return together(list(delimited.blocks(folder, name, features, **more)))


def lines(folder: Path, data: str | bytes, features: dict[str, Feature], **more: Any) -> Columns:
    (folder / "t.jsonl").write_bytes(data if isinstance(data, bytes) else data.encode())
    return together(list(jsonl.blocks(folder, "t.jsonl", features, **more)))


def fails(kind: type[GristmillError], call: Callable[[], object], *facts: str) -> str:
    with pytest.raises(kind) as caught:
        call()
    for fact in facts:
        assert fact in str(caught.value)
    return str(caught.value)
