from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.errors import ArtifactDamaged, DataFormatError
from datasets.schema import Columns, Feature
from tasks.records import Shards
from tasks.shard_writer import write_shards
from tasks.straight_reads import places_of

ROWS = 64
FEATURES = {"x": Feature("float32", (12,)), "pixels": Feature("uint8", (3, 5)), "label": Feature("int32")}


def rows(count: int) -> Columns:
    random = np.random.default_rng(0)
    return {
        "x": random.normal(size=(count, 12)).astype(np.float32),
        "pixels": random.integers(0, 256, (count, 3, 5), dtype=np.uint8),
        "label": np.arange(count, dtype=np.int32),
    }


class Asked:
    """Shards with room for one block, and which records the checking reader was asked for."""

    def __init__(self, folder: Path, count: int, rows_per_record: int = ROWS, rows_per_shard: int = 1 << 16) -> None:
        self.columns = rows(count)
        made = write_shards(
            folder, "train", [self.columns], FEATURES, rows_per_record=rows_per_record, rows_per_shard=rows_per_shard
        )
        self.shards = Shards(folder, made, FEATURES, rows_per_record, cache_bytes=1)
        self.path = folder / made[0].name
        self.by_reader: list[int] = []
        read = self.shards._bytes_of
        self.shards._bytes_of = lambda index, numbers: self.by_reader.extend(numbers) or read(index, numbers)

    def check(self, ids: np.ndarray) -> list[int]:
        """Reads rows, compares them, and gives the records that the reader was asked for, numbered in their shard."""
        self.by_reader.clear()
        for name, values in self.shards.read(ids).items():
            np.testing.assert_array_equal(values, self.columns[name][ids])
        return list(self.by_reader)


@pytest.mark.parametrize("size", [1, 127, 128, 13_312, 65_512, 70_000, 200_000, 3_000_000])
def test_places_are_where_the_writer_puts_records(tmp_path: Path, size: int) -> None:
    count = 400 if size < 20_000 else 9
    path, random = tmp_path / "x", np.random.default_rng(size)
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1,uncompressed,max_parallelism:1")
    records = [random.bytes(size) for _ in range(count)]
    for record in records:
        writer.write(record)
    writer.close()
    content = path.read_bytes()
    for record, start, left in zip(records, *(a.tolist() for a in places_of(np.arange(count), size)), strict=True):
        assert content[start : start + min(left, size)] == record[:left]
        assert content[start + left + 24 :][: max(0, min(size - left, 65_512))] == record[left:][:65_512]


def test_a_block_is_checked_once_and_then_read_straight(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 3000)  # 4,288 bytes a record: several lie across the header of a 64 KiB block
    whole = 3000 // ROWS
    assert asked.check(np.arange(3000)) == [*range(whole), whole]
    for seed in range(3):
        assert asked.check(np.random.default_rng(seed).permutation(3000)) == [whole]  # the short one


def test_records_larger_than_the_distance_of_headers(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 12_000, rows_per_record=4000, rows_per_shard=12_000)  # 268,000 bytes a record
    assert asked.check(np.arange(12_000)) == [0, 1, 2]
    assert asked.check(np.arange(12_000)[::-1]) == []


def test_many_shards_are_told_apart(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 1000, rows_per_shard=2 * ROWS)
    assert len(asked.check(np.arange(1000))) == 16
    assert asked.check(np.arange(1000)[::-1]) == [1]  # the short one, of the last shard


def test_rows_that_are_no_whole_words_are_left_to_the_reader(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 30, rows_per_record=1, rows_per_shard=64)
    assert asked.check(np.arange(30)) == asked.check(np.arange(30)) == list(range(30))


def overwrite(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_damage_after_the_check_is_found_by_the_reader(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 3000)
    asked.check(np.arange(3000))
    overwrite(asked.path, int(places_of(np.array([7]), ROWS * 67)[0][0]) + 100)
    assert asked.check(np.arange(6 * ROWS)) == []
    for _ in range(2):
        with pytest.raises(ArtifactDamaged, match="hash mismatch"):
            asked.shards.read(np.array([7 * ROWS]))
    assert asked.check(np.arange(8 * ROWS, 20 * ROWS)) == []


def test_words_that_changed_places_are_found(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 3000)
    asked.check(np.arange(3000))
    content, start = bytearray(asked.path.read_bytes()), int(places_of(np.array([7]), ROWS * 67)[0][0])
    content[start : start + 16] = content[start + 8 : start + 16] + content[start : start + 8]
    asked.path.write_bytes(content)
    with pytest.raises(ArtifactDamaged, match="hash mismatch"):
        asked.shards.read(np.array([7 * ROWS]))


def zero_page(content: bytearray, start: int) -> None:
    content[start : start + 4096] = bytes(4096)


def two_signs(content: bytearray, start: int) -> None:
    content[start + 7] ^= 0x80
    content[start + 15] ^= 0x80


@pytest.mark.parametrize("damage", [zero_page, two_signs])
def test_changes_of_upper_bits_alone_are_found(tmp_path: Path, damage: Any) -> None:
    features = {"x": Feature("float64", (16,))}
    (shard,) = write_shards(
        tmp_path, "train", [{"x": np.ones((640, 16))}], features, rows_per_record=ROWS, rows_per_shard=640
    )
    shards = Shards(tmp_path, [shard], features, ROWS, cache_bytes=1)
    shards.read(np.arange(640))
    path = tmp_path / shard.name
    content = bytearray(path.read_bytes())
    damage(content, int(places_of(np.array([3]), ROWS * 128)[0][0]))
    path.write_bytes(content)
    with pytest.raises(ArtifactDamaged, match="hash mismatch"):
        shards.read(np.array([3 * ROWS]))


def test_a_file_that_is_cut_or_gone_is_an_error(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 3000)
    asked.check(np.arange(3000))
    asked.path.write_bytes(asked.path.read_bytes()[:65_536])
    with pytest.raises(DataFormatError, match="0 bytes") as caught:
        asked.shards.read(np.array([40 * ROWS]))
    assert asked.path.name in str(caught.value)
    asked.path.unlink()
    asked.shards._straight._files.clear()
    with pytest.raises((ArtifactDamaged, DataFormatError), match=asked.path.name):
        asked.shards.read(np.array([41 * ROWS]))


def test_a_shard_with_other_places_is_read_by_the_reader(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 640)
    reader = array_record_module.ArrayRecordReader(str(asked.path))
    records = reader.read_all()
    reader.close()
    writer = array_record_module.ArrayRecordWriter(str(asked.path), "group_size:1,zstd:3")
    for record in records:
        writer.write(record)
    writer.close()
    size = asked.path.stat().st_size
    made = [type(asked.shards.shards[0])(asked.path.name, 640, "", size)]
    columns = asked.columns
    shards = Shards(tmp_path, made, FEATURES, ROWS, cache_bytes=1)
    for seed in range(3):
        ids = np.random.default_rng(seed).permutation(640)
        for name, values in shards.read(ids).items():
            np.testing.assert_array_equal(values, columns[name][ids])
