"""The benchmark of conversion works at a small scale; its figures are no test's business."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tasks.benchmarks import convert as bench
from tasks.durable import read_json


def test_every_measure_is_made(tmp_path: Path) -> None:
    writer = bench.against_bare_writer(tmp_path, 1, 3000)
    sizes = bench.many_rows(tmp_path, 1, 500, 2000)
    assert [measure.goal for measure in [*writer, *sizes]] == [">= 0.8", "", "", "<= 1.15", "< 1.5"]
    assert all(measure.value > 0 for measure in [*writer, *sizes])
    assert 0.03 < sizes[1].value < 5


def test_every_file_is_converted(tmp_path: Path) -> None:
    many = bench.Bench(tmp_path, 1200, 3)
    many.converted(GRISTMILL_WORKERS="1")
    (facts,) = [read_json(path)["facts"] for path in (tmp_path / "records").rglob("manifest.json")]
    assert facts["splits"]["train"]["rows"] == 1200
    assert len(facts["splits"]["train"]["shards"]) == 3


def test_the_raw_rows_are_as_many_as_asked_for(tmp_path: Path) -> None:
    bench.write_parquet(tmp_path / "x.parquet", 2500, 0, piece=1000)
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.num_rows == 2500
    assert table.column_names == [*bench.NAMES, "label"]
    assert set(np.unique(table.column("label"))) == {0, 1}
