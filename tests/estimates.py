"""A table whose label is a number, in a Parquet file, and requests that train on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import toy

from datasets.readers import parquet
from datasets.schema import Block, Columns, Dataset, Feature, RawFile, Rows, Source, Validation
from datasets.transforms import Standardise
from tasks.request import Request

ROWS, TRAIN = 480, 320
FILE = "flats.parquet"
FEATURES = {
    "x": Feature("float32", (3,)),
    "storey": Feature("int32", classes=("low", "high")),
    "price": Feature("float32", low=0),
}


def table(rows: int = ROWS, seed: int = 0) -> Columns:
    """Prices around 900 that follow from `x`, with noise of 10."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)).astype(np.float32)
    price = 900 + x @ np.array([60.0, -40.0, 20.0]) + random.normal(0, 10, rows)
    return {"x": x, "storey": random.integers(0, 2, rows).astype(np.int32), "price": price.astype(np.float32)}


def write(path: Path, columns: Columns, *, labels: bool = True) -> Path:
    """Raw rows as a Parquet file."""
    plain = {name: columns["x"][:, i] for i, name in enumerate("abc")}
    plain["storey"] = columns["storey"]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**plain, "price": columns["price"]} if labels else plain), path)
    return path


def read(raw: Path) -> Iterator[Block]:
    yield from parquet.blocks(raw, "", FEATURES, columns={"x": ("a", "b", "c")}, rows=100)


def dataset(source: Source | None = None, **changes: Any) -> Dataset:
    options: dict[str, Any] = {
        "about": "Flats", "source": source or Source(pattern="**", folder="nowhere"), "read": read,
        "features": FEATURES, "inputs": "x", "label": "price", "slices": ("storey",),
        "splits": {"train": Rows(0, TRAIN), "test": Rows(TRAIN, ROWS)}, "validation": Validation(leaks="warn"),
        "transforms": {"price": Standardise()}, **changes,
    }  # fmt: skip
    return Dataset(**options)


def request(store: Path, columns: Columns | None = None, *, recipe: Any = None, **changes: Any) -> Request:
    """The checked request of a run on the table, which is written as a raw file."""
    content = write(store / "given" / FILE, columns or table()).read_bytes()
    source = Source((RawFile(FILE, hashlib.sha256(content).hexdigest(), len(content)),))
    options = {"epochs": 12, "learning_rate": 1e-2, **(recipe or {})}
    return toy.request_for(store, dataset(source, **changes), store / "given", **options)
