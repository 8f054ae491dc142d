"""What predictions cost: a million rows of 12 float32 from Parquet to Parquet, and how far memory and rate are flat.

Whole runs in processes of their own, whose peak memory is the kernel's count (VmHWM). The limit beside them is the same
model on the same rows in memory, without reading and writing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from datasets.schema import Dataset
from datasets.transforms import Standardise
from tasks.artifact import Draft, Store
from tasks.benchmark import Measure, paired
from tasks.benchmarks.convert import CHECKOUT, FEATURES, job_at, made_columns, write_parquet
from tasks.fitted import write_fitted
from tasks.predict import predict_raw, rows_of_a_batch
from tasks.registry import Registry
from tasks.trained import load_version
from tasks.transform import learned

ROUNDS = 5
FEW, MANY = 100_000, 1_000_000
NAME = "rows"


def run(rounds: int = ROUNDS, *, scale: float = 1.0) -> list[Measure]:
    """All measures; about two minutes at full scale.

    Args:
        rounds: Of each measurement.
        scale: Of the numbers of rows.
    """
    few, many = int(FEW * scale), int(MANY * scale)
    with tempfile.TemporaryDirectory(prefix="gristmill-predict-") as folder:
        root = Path(folder)
        promote(root)
        for rows in (few, many):
            (root / f"data-{rows}" / "data").mkdir(parents=True)
            write_parquet(root / f"data-{rows}" / "data" / "rows.parquet", rows, 0)
        done: dict[int, list[dict[str, float]]] = {few: [], many: []}
        limits = []
        for _ in range(rounds):
            for rows, results in done.items():
                results.append(predicted(root, rows))
            limits.append(in_memory(root, many))
    name = f"{many:,} rows of 12 float32, Parquet to Parquet"
    rates = [one["rows_per_second"] for one in done[many]]
    grown = [one["peak_gb"] - less["peak_gb"] for one, less in zip(done[many], done[few], strict=True)]
    return [
        paired(name, "rows/s", rates, limits, against="the model on rows in memory"),
        paired(f"{name}, start of the process included", "s", [one["whole_s"] for one in done[many]]),
        paired(f"peak memory of {many:,} rows", "GB", [one["peak_gb"] for one in done[many]], goal="< 1.5"),
        paired(f"more memory than for {few:,} rows", "GB", grown),
    ]


def dataset() -> Dataset:
    """The rows of the conversion's benchmark, standardised."""
    made = job_at(Path("unused"), "predict").request.dataset
    return replace(made, transforms={"x": Standardise()})


def promote(root: Path) -> None:
    """Puts a version into the store: weights of a fresh model, transforms of its rows."""
    from tasks.weights import build_model, save_weights

    class InMemory:
        features, digest = FEATURES, ""

        def __len__(self) -> int:
            return 10_000

        def read(self, ids: np.ndarray) -> dict[str, np.ndarray]:
            return {name: column[ids] for name, column in columns.items()}

    columns = made_columns(10_000)
    fitted = learned(dataset(), InMemory())
    seen = fitted.dataset(dataset())
    model = build_model("mlp", seen.features["x"], 2, dropout=0.0, seed=0)
    model.eval()

    def fill(draft: Draft) -> None:
        save_weights(draft.folder, model, seen)
        write_fitted(draft.folder, fitted)

    weights = job_at(root, "fit").commit("weights", fill)
    registry = Registry(Store(root), NAME)
    with registry.lock():
        registry.crown(registry.add(weights, {}))


def predicted(root: Path, rows: int) -> dict[str, float]:
    """Rate, seconds and peak memory of one run of `predict_raw` in a process of its own."""
    code = "import sys; from tasks.benchmarks.predict import child; child(*sys.argv[1:])"
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - this project's own code
        [sys.executable, "-c", code, str(root), str(root / f"data-{rows}")], cwd=CHECKOUT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return {**json.loads(done.stdout.splitlines()[-1]), "whole_s": time.perf_counter() - began}


def child(root: str, raw: str) -> None:
    """Predicts, and prints the rate and the peak of this process's memory."""
    made = dataset()
    known: Any = datasets
    known.names, known.load = lambda: [NAME], lambda name: made  # no dataset file stands for the benchmark's rows
    report = predict_raw(NAME, raw, Path(root, "out.parquet"), store=root)
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    result = {"rows_per_second": report["rows_per_second"], "peak_gb": peak * 1024 / 1e9}
    sys.stdout.write(json.dumps(result) + "\n")


def in_memory(root: Path, rows: int) -> float:
    """Rows a second of the compiled model alone."""
    from tasks.predictor import Scorer

    trained = load_version(Store(root), NAME)
    x = made_columns(rows)["x"]
    scorer = Scorer(trained.model, trained.sees, rows_of_a_batch(x.shape[1]))
    scorer.score(x[:10])
    began = time.perf_counter()
    scorer.score(x)
    return rows / (time.perf_counter() - began)
