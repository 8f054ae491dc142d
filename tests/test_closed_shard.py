from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from datasets.errors import DataFormatError, StoreError
from datasets.schema import Feature
from tasks.closed_shard import ClosedShard
from tasks.records import Shard
from tasks.shard_writer import write_shards

ROWS = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    columns = {"x": np.arange(ROWS, dtype=np.float32)}
    (shard,) = write_shards(
        tmp_path, "train", [columns], {"x": Feature("float32")}, rows_per_record=8, rows_per_shard=128
    )
    return tmp_path / shard.name


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("hash_here", [True, False])
def test_it_is_hashed_and_synced(path: Path, hash_here: bool) -> None:
    with ThreadPoolExecutor(2) as beside:
        shard = ClosedShard(path, ROWS, 8, beside, hash_here=hash_here).result()
    content = path.read_bytes()
    assert shard == Shard(path.name, ROWS, hashlib.sha256(content).hexdigest(), len(content))


def test_records_are_counted(path: Path) -> None:
    with ThreadPoolExecutor(2) as beside, pytest.raises(DataFormatError, match="another number of records"):
        ClosedShard(path, ROWS + 8, 8, beside, hash_here=False)


def test_a_failed_sync_is_told_and_nothing_stays_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    before = open_files()
    with ThreadPoolExecutor(2) as beside:
        shard = ClosedShard(path, ROWS, 8, beside, hash_here=False)
        with pytest.raises(StoreError, match="No space left") as caught:
            shard.result()
    assert caught.value.facts["file"] == str(path)
    assert open_files() == before


def test_what_was_cancelled_is_let_go(path: Path) -> None:
    busy = threading.Event()
    beside = ThreadPoolExecutor(1)
    beside.submit(busy.wait, 20)
    before = open_files()
    shard = ClosedShard(path, ROWS, 8, beside, hash_here=False)
    assert not shard.is_done
    threading.Timer(0.05, busy.set).start()
    beside.shutdown(cancel_futures=True)
    shard.close()
    assert open_files() == before
