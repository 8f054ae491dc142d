"""Where the rows of a split are read from, and in which order: a rule on the size of the split and nothing else.

| rows of the split | read from | order |
|---|---|---|
| up to `MAPPED_BYTES` | memory-mapped columns, decoded once from the shards | one permutation of all rows an epoch |
| more | the ArrayRecord shards themselves, a window of blocks in memory | blocks permuted, then rows within a window |

The size is that of the decoded rows. The limits are constants of the code, not settings of a machine: the order of
examples decides the weights, so it must follow from the data alone. Who changes a limit changes the key of `fit`.
Columns may besides be kept on the device (`resident.py`): same order, so that is a question of speed only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from datasets.schema import Feature
from tasks.columns import MappedColumns, build_columns
from tasks.order import Order
from tasks.record_layout import Layout
from tasks.records import Shards

MAPPED_BYTES = 64 << 30  # a split of more isn't written a second time, as columns, to the disk
WINDOW_BYTES = 128 << 20  # of rows within which examples are shuffled when they come from the shards
MOST_WINDOW = 1 << 16  # rows

COLUMNS, SHARDS = "memory-mapped columns", "ArrayRecord shards"


def tier_of(rows: int, features: Mapping[str, Feature]) -> str:
    """COLUMNS or SHARDS."""
    return COLUMNS if rows * Layout.of(features).row_bytes <= MAPPED_BYTES else SHARDS


def order_of(shards: Shards, batch_size: int, seed: int) -> Order:
    """The order of a split's examples, by its tier."""
    if tier_of(len(shards), shards.features) == COLUMNS:
        return Order(len(shards), batch_size, seed)
    return Order(
        len(shards), batch_size, seed, block=shards.rows_per_record,
        window=window_of(shards.features, shards.rows_per_record),
    )  # fmt: skip


def window_of(features: Mapping[str, Feature], rows_per_record: int) -> int:
    """Rows of a shuffle window: whole records, 128 MiB or 65,536 rows, whichever is less, but one record at least."""
    rows = min(MOST_WINDOW, WINDOW_BYTES // Layout.of(features).row_bytes)
    return max(1, rows // rows_per_record) * rows_per_record


def open_rows(shards: Shards, folder: Path) -> MappedColumns | Shards:
    """The rows of a split, from its tier.

    Args:
        shards: The split; read itself, with room for the blocks of three windows, where it is too large for columns.
        folder: Of the columns, which are decoded when they aren't there.

    Raises:
        ArtifactDamaged, DataFormatError: A shard isn't what it was when it was written.
        StoreError: The disk is full or fails.
    """
    if tier_of(len(shards), shards.features) == COLUMNS:
        build_columns(shards, folder)
        return MappedColumns(folder)
    room = 3 * window_of(shards.features, shards.rows_per_record) * Layout.of(shards.features).row_bytes
    return Shards(shards.folder, shards.shards, shards.features, shards.rows_per_record, cache_bytes=room)
