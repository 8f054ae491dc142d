from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.readers import parquet
from datasets.readers.cores import may_use_all, one_core
from datasets.schema import Feature


def test_it_holds_within_and_in_this_thread_alone() -> None:
    seen: list[bool] = []
    with one_core():
        other = threading.Thread(target=lambda: seen.append(may_use_all()))
        other.start()
        other.join()
        seen.append(may_use_all())
    assert [*seen, may_use_all()] == [True, False, True]


@pytest.mark.parametrize("alone", [True, False])
def test_parquet_is_read_with_one_thread_beside_others(
    tmp_path: Path, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    asked: list[bool] = []
    batches = pq.ParquetFile.iter_batches

    def noted(self: Any, **options: Any) -> Any:
        asked.append(options["use_threads"])
        return batches(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    read = parquet.blocks(tmp_path, "a.parquet", {"x": Feature("int64")})
    if alone:
        list(read)
    else:
        with one_core():
            list(read)
    assert asked == [alone]
