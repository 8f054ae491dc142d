"""A store with a promoted model of the mixed table, and the dataset in the place of a dataset file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mixed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import toy

import datasets
from datasets.readers import parquet
from datasets.schema import Columns, Dataset, Source, Validation
from tasks.artifact import Artifact, Store
from tasks.evaluate import evaluate_weights
from tasks.registry import Registry
from tasks.request import Request

NAME = "toy"


def read(raw: Path) -> Any:
    return parquet.blocks(raw, "", mixed.FEATURES, columns={"three": ("a", "b", "c")}, rows=50)


def dataset(**changes: Any) -> Dataset:
    options: dict[str, Any] = {"source": Source(pattern="**", folder="nowhere"), "read": read, **changes}
    return mixed.dataset(**{"validation": Validation(leaks="warn", on_bad="quarantine", most_bad=0.1), **options})


def write_rows(path: Path, columns: Columns, *, labels: bool = False) -> Path:
    """Raw rows as a Parquet file."""
    texts = [bytes(row).rstrip(b"\0").decode() for row in columns["country"]]
    plain: dict[str, Any] = {"amount": columns["amount"], "country": texts, "shop": columns["shop"]}
    plain |= {name: columns["three"][:, i] for i, name in enumerate("abc")}
    if labels:
        plain["label"] = columns["label"]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(plain), path)
    return path


def promote(store: Path, made: Dataset | None = None, *, seed: int = 3) -> tuple[Request, dict[str, Artifact]]:
    """Crowns weights of a fresh model; gives the request as the model sees it, and the artifacts of the run."""
    request = mixed.request_for(store, made or mixed.dataset(), seed=seed)
    seen, inputs = mixed.prepare(request)
    weights = mixed.untrained(seen, f"fit-{seed}", seed)
    evaluation = evaluate_weights(toy.job(seen, "evaluate", f"evaluate-{seed}"), inputs["records"], weights)
    registry = Registry(Store(store), NAME)
    with registry.lock():
        registry.crown(registry.add(weights, {}))
    return seen, {**inputs, "weights": weights, "evaluation": evaluation}


def instead_of_a_file(made: Dataset) -> Any:
    """Patches `datasets` so that the toy dataset is known; for `pytest.MonkeyPatch.context` or a child process."""
    import pytest

    patch = pytest.MonkeyPatch()
    patch.setattr(datasets, "names", lambda: [NAME])
    patch.setattr(datasets, "load", lambda name: made)
    return patch


def logits_of(store: Path, evaluation: Artifact) -> np.ndarray:
    with np.load(Store(store).path(evaluation) / "predictions.npz", allow_pickle=False) as file:
        return file["logits"]
