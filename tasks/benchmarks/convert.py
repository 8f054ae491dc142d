"""What conversion costs: against a bare ArrayRecordWriter, with two workers, from 100 thousand to 10 million rows.

Rows are 12 float32 and a label, as of a table of transactions. Whole conversions run in processes of their own, whose
peak memory is the kernel's count (VmHWM). Rounds are paired, so that the noise of a shared machine hits both sides.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.readers import parquet
from datasets.schema import Columns, Dataset, Feature, Files, Source
from tasks.artifact import Artifact, Draft, Store
from tasks.benchmark import Measure, paired
from tasks.convert import convert_raw
from tasks.dealing import ROWS_PER_RECORD, rows_of_a_shard
from tasks.fetch import prepared
from tasks.parts import KIND
from tasks.record_layout import Layout
from tasks.shard_writer import OPTIONS, write_shards
from tasks.stage import Job

ROUNDS = 5
FEW, MANY = 100_000, 10_000_000
IN_MEMORY, ON_FILES, FILES = 4_000_000, 48_000_000, 24
WIDTH = 12
FEATURES = {"x": Feature("float32", (WIDTH,)), "label": Feature("int32", classes=("no", "yes"))}
NAMES = tuple(f"v{i}" for i in range(WIDTH))
CHECKOUT = Path(__file__).parent.parent.parent


def run(rounds: int = ROUNDS, *, scale: float = 1.0) -> list[Measure]:
    """All measures; some minutes and 4 GB of disk at full scale.

    Args:
        rounds: Pairs of each measurement.
        scale: Of the numbers of rows.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-convert-") as folder:
        root = Path(folder)
        return [
            *against_bare_writer(root, rounds, int(IN_MEMORY * scale)),
            *two_workers(root, max(1, rounds // 2), int(ON_FILES * scale)),
            *many_rows(root, max(1, rounds // 2), int(FEW * scale), int(MANY * scale)),
        ]


def against_bare_writer(root: Path, rounds: int, rows: int) -> list[Measure]:
    """Shards from columns in memory, checked, hashed, synced and renamed; against records that are only written.

    The bare writer has the same options as ours, and gets records that were joined before. It is measured without a
    sync (the goal: what nobody could rely on after a power cut) and with one sync of its file. Each writes where
    nothing is yet: to remove a file that was synced costs the disk more than to remove one that never reached it.
    """
    columns = made_columns(rows)
    layout = Layout.of(FEATURES)
    records = [
        b"".join(layout.encode(columns, start, min(start + ROWS_PER_RECORD, rows)))
        for start in range(0, rows, ROWS_PER_RECORD)
    ]
    size = sum(map(len, records)) / 1e6
    ours, same, synced, compressed = [], [], [], []
    for _ in range(rounds):
        ours.append(size / _written(root, lambda folder: _ours(folder, columns)))
        same.append(size / _written(root, lambda folder: _bare(folder, records, OPTIONS, sync=False)))
        synced.append(size / _written(root, lambda folder: _bare(folder, records, OPTIONS, sync=True)))
        compressed.append(size / _written(root, lambda folder: _bare(folder, records, "group_size:1", sync=False)))
    name = "columns in memory to shards"
    return [
        paired(name, "MB/s", ours, same, against="bare ArrayRecordWriter, uncompressed", goal=">= 0.8"),
        paired(name, "MB/s", ours, synced, against="bare ArrayRecordWriter, uncompressed, fsync"),
        paired(name, "MB/s", ours, compressed, against="bare ArrayRecordWriter, its default zstd"),
    ]


def two_workers(root: Path, rounds: int, rows: int) -> list[Measure]:
    """Parquet files to shards with two workers, against one; the start of the processes counts."""
    bench = Bench(root / "files", rows, FILES)
    measures = []
    for pool in ("threads", "processes"):
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for workers in rates:
                result = bench.converted(GRISTMILL_POOL=pool, GRISTMILL_WORKERS=str(workers))
                rates[workers].append(rows / result["seconds"])
        measures.append(paired(f"2 {pool}", "rows/s", rates[2], rates[1], against="1 worker", goal=">= 1.6"))
    return measures


def many_rows(root: Path, rounds: int, few: int, many: int) -> list[Measure]:
    """Seconds a row and peak memory from one Parquet file to the next size."""
    costs: dict[int, list[float]] = {few: [], many: []}
    peaks: list[float] = []
    benches = {rows: Bench(root / str(rows), rows, 1) for rows in costs}
    for _ in range(rounds):
        results = {rows: bench.converted(GRISTMILL_WORKERS="1") for rows, bench in benches.items()}
        for rows, result in results.items():
            costs[rows].append(result["seconds"] / rows * 1e9)
        peaks.append(results[many]["peak_gb"])
    return [
        paired(f"{many:,} rows", "ns/row", costs[many], costs[few], against=f"{few:,} rows", goal="<= 1.15"),
        paired(f"peak memory of {many:,} rows", "GB", peaks, goal="< 1.5"),
    ]


class Bench:
    """A raw artifact of Parquet files, and conversions of it in processes of their own.

    The files are one under many names, so that much is to be converted and little was to be made; each is a part.
    """

    def __init__(self, root: Path, rows: int, files: int) -> None:
        self.root, self.rows = root, rows
        job = job_at(root, "fetch")

        def fill(draft: Draft) -> None:
            (draft.folder / "data").mkdir()
            first = draft.folder / "data" / "train-000.parquet"
            write_parquet(first, rows // files, 0)
            for i in range(1, files):
                os.link(first, first.with_name(f"train-{i:03d}.parquet"))
            write_parquet(draft.folder / "data" / "test-000.parquet", 1000, files)

        self.raw = job.commit("raw", fill)

    def converted(self, **environment: str) -> dict[str, float]:
        """Seconds and peak memory of one conversion from nothing."""
        for kind in (KIND, "records"):
            shutil.rmtree(self.root / kind, ignore_errors=True)
        code = "import sys; from tasks.benchmarks.convert import child; child(*sys.argv[1:])"
        done = subprocess.run(  # noqa: S603 - this project's own code
            [sys.executable, "-c", code, str(self.root), json.dumps(self.raw.to_json())], cwd=CHECKOUT, check=True,
            capture_output=True, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])


def child(root: str, raw: str) -> None:
    """Converts, and prints the seconds that it took and the peak of this process's memory."""
    job = job_at(Path(root), "convert")
    took = _seconds(lambda: convert_raw(job, raw=Artifact(**json.loads(raw))))
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    sys.stdout.write(json.dumps({"seconds": took, "peak_gb": peak * 1024 / 1e9}) + "\n")


def job_at(root: Path, stage: str) -> Job:
    """A job of the benchmark's dataset."""
    request = prepared("mnist", store=root)
    made = Dataset(
        about="Rows of 12 numbers", source=Source(()), inputs="x", label="label", features=FEATURES, by_file=True,
        read=functools.partial(parquet.blocks, where="data", features=FEATURES, columns={"x": NAMES}),
        splits={"train": Files("data/train"), "test": Files("data/test")},
    )  # fmt: skip
    return Job(stage, stage, {}, replace(request, name="rows", dataset=made), Store(root))


def write_parquet(path: Path, rows: int, seed: int, piece: int = 250_000) -> None:
    """A Parquet file of 12 float32 columns and a label, written a piece at a time."""
    types = pa.schema([*((name, pa.float32()) for name in NAMES), ("label", pa.int32())])
    with pq.ParquetWriter(path, types, compression="snappy") as writer:
        for start in range(0, rows, piece):
            part = made_columns(min(piece, rows - start), seed * 1000 + start)
            arrays = [*(np.ascontiguousarray(part["x"][:, i]) for i in range(WIDTH)), part["label"]]
            writer.write_table(pa.table([pa.array(array) for array in arrays], schema=types))


def made_columns(rows: int, seed: int = 0) -> Columns:
    """Columns of the benchmark's features."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, WIDTH), np.float32)
    return {"x": x, "label": (x[:, 0] > 1).astype(np.int32)}


def _ours(folder: Path, columns: Columns) -> None:
    write_shards(folder, "train", [columns], FEATURES, rows_per_shard=rows_of_a_shard(FEATURES))


def _bare(folder: Path, records: list[bytes], options: str, *, sync: bool) -> None:
    path = folder / "bare"
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    if sync:
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _written(root: Path, work: Callable[[Path], Any]) -> float:
    """Seconds that it takes to write into a new folder, which is removed afterwards, before the next is measured."""
    folder = root / "written"
    folder.mkdir()
    took = _seconds(lambda: work(folder))
    shutil.rmtree(folder)
    os.sync()  # else the next one's first sync waits until the disk has dropped these files
    return took


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
