from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.schema import Feature
from tasks import tiers
from tasks.columns import MappedColumns
from tasks.order import Order
from tasks.pipeline import Pipeline
from tasks.records import Shards
from tasks.shard_writer import write_shards
from tasks.tiers import COLUMNS, SHARDS, open_rows, order_of, tier_of, window_of

FEATURES = {"x": Feature("uint8", (5,)), "id": Feature("int32")}  # 9 bytes a row
SIZE = 203


@pytest.fixture(params=[(16, 64), (16, 256), (1, 32)], ids=str)
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> Shards:
    rows_per_record, rows_per_shard = request.param
    x = np.random.default_rng(0).integers(0, 256, (SIZE, 5), dtype=np.uint8)
    block = {"x": x, "id": np.arange(SIZE, dtype=np.int32)}
    made = write_shards(
        tmp_path, "train", [block], FEATURES, rows_per_record=rows_per_record, rows_per_shard=rows_per_shard
    )
    return Shards(tmp_path, made, FEATURES, rows_per_record)


def test_the_size_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 9 * SIZE)
    assert tier_of(SIZE, FEATURES) == COLUMNS
    assert tier_of(SIZE + 1, FEATURES) == SHARDS


def test_small_splits_are_decoded_into_columns_in_one_permutation(shards: Shards, tmp_path: Path) -> None:
    rows = open_rows(shards, tmp_path / "columns")
    assert isinstance(rows, MappedColumns)
    assert order_of(shards, 8, 5) == Order(SIZE, 8, 5)
    np.testing.assert_array_equal(rows.read(np.arange(SIZE))["id"], np.arange(SIZE))


def test_large_splits_are_read_from_their_shards_within_windows(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 0)
    monkeypatch.setattr(tiers, "WINDOW_BYTES", 9 * 48)
    rows = open_rows(shards, tmp_path / "columns")
    assert isinstance(rows, Shards)
    assert not (tmp_path / "columns").exists()
    assert rows.cache_bytes == 3 * 48 * 9
    order = order_of(shards, 8, 5)
    assert order == Order(SIZE, 8, 5, block=shards.rows_per_record, window=48)


def test_a_window_is_whole_records_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert window_of(FEATURES, 256) == tiers.MOST_WINDOW
    pictures = {"image": Feature("uint8", (128, 128, 3))}
    assert window_of(pictures, 256) == (128 << 20) // 49152 // 256 * 256 == 2560
    monkeypatch.setattr(tiers, "WINDOW_BYTES", 1)
    assert window_of(pictures, 256) == 256


def test_where_the_order_is_the_same_the_batches_are(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each order over each tier: an order says which rows, wherever they are read from."""
    mapped = open_rows(shards, tmp_path / "columns")
    monkeypatch.setattr(tiers, "WINDOW_BYTES", 9 * 48)
    orders = [order_of(shards, 8, 5)]
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 0)
    blocks = open_rows(shards, tmp_path / "none")
    orders.append(order_of(shards, 8, 5))
    for order in orders:
        one, other = (
            Pipeline(source, order, inputs="x", digest="d", split="train") for source in (mapped, blocks)
        )  # fmt: skip
        for step in range(60):
            for name in FEATURES:
                np.testing.assert_array_equal(one.batch(step)[name], other.batch(step)[name])
    assert orders[0].ids(0)[1].tolist() != orders[1].ids(0)[1].tolist()


def test_each_block_is_read_about_once_an_epoch(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 0)
    monkeypatch.setattr(tiers, "WINDOW_BYTES", 9 * 48)
    rows, order = open_rows(shards, tmp_path / "none"), order_of(shards, 8, 5)
    assert isinstance(rows, Shards)
    read: list[int] = []
    fill = rows._fill
    monkeypatch.setattr(rows, "_fill", lambda records, *into: read.extend(records.tolist()) or fill(records, *into))
    for step in range(order.steps_per_epoch):
        rows.read(order.ids(step)[1])
    count = -(-SIZE // shards.rows_per_record)
    assert len(set(read)) >= count - 8 // shards.rows_per_record - 1
    assert len(read) <= 1.1 * count + 1
