from __future__ import annotations

import dataclasses
import hashlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.errors import ArtifactDamaged, DataFormatError, ParameterError, SchemaError, SplitError
from datasets.schema import Columns, Feature
from tasks import records as records_module
from tasks import straight_reads
from tasks.records import Shards
from tasks.shard_writer import ShardWriter, write_shards

FEATURES = {
    "image": Feature("uint8", (3, 2)),
    "label": Feature("int32", classes=("a", "b", "c")),
    "amount": Feature("float64"),
}


def rows(count: int, seed: int = 0) -> Columns:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (count, 3, 2), dtype=np.uint8),
        "label": rng.integers(0, 3, count, dtype=np.int32),
        "amount": rng.normal(size=count),
    }


def cut(columns: Columns, *lengths: int) -> Iterator[Columns]:
    start = 0
    for length in lengths:
        yield {name: values[start : start + length] for name, values in columns.items()}
        start += length


def write(folder: Path, count: int, rows_per_record: int = 8, rows_per_shard: int = 32) -> tuple[Columns, Shards]:
    columns = rows(count)
    shards = write_shards(
        folder, "train", [columns], FEATURES, rows_per_record=rows_per_record, rows_per_shard=rows_per_shard
    )
    return columns, Shards(folder, shards, FEATURES, rows_per_record)


def assert_equal(got: Columns, expected: Columns, ids: np.ndarray | slice = slice(None)) -> None:
    assert set(got) == set(expected)
    for name, values in expected.items():
        assert got[name].dtype == values.dtype
        np.testing.assert_array_equal(got[name], values[ids])


def overwrite(path: Path, at: int, flip: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= flip
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (8, [8]), (31, [31]), (32, [32]), (33, [32, 1]), (100, [32, 32, 32, 4])]
)
def test_rows_come_back_in_order(tmp_path: Path, count: int, sizes: list[int]) -> None:
    columns, shards = write(tmp_path, count)
    assert [shard.rows for shard in shards.shards] == sizes
    total = f"{len(sizes):05d}"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"train-{i:05d}-of-{total}.array_record" for i in range(len(sizes))
    ]
    assert len(shards) == count
    blocks = list(shards.blocks())
    assert_equal({name: np.concatenate([b[name] for b in blocks]) for name in FEATURES}, columns)


def test_shards_say_what_is_on_disk(tmp_path: Path) -> None:
    _, shards = write(tmp_path, 100)
    for shard in shards.shards:
        data = (tmp_path / shard.name).read_bytes()
        assert (shard.bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("lengths", [(70,), (1,) * 70, (0, 33, 0, 37), (8, 8, 16, 38), (69, 1)])
def test_the_cut_into_blocks_leaves_no_trace(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    columns = rows(70)
    options = {"rows_per_record": 8, "rows_per_shard": 32}
    whole = write_shards(tmp_path / "whole", "train", [columns], FEATURES, **options)
    assert write_shards(tmp_path / "cut", "train", cut(columns, *lengths), FEATURES, **options) == whole


def test_bytes_depend_on_names_not_on_their_order(tmp_path: Path) -> None:
    columns = rows(20)
    backwards = dict(reversed(FEATURES.items()))
    first = write_shards(tmp_path / "a", "train", [columns], FEATURES)
    second = write_shards(tmp_path / "b", "train", [dict(reversed(columns.items()))], backwards)
    assert first == second
    assert_equal(Shards(tmp_path / "a", first, backwards, 256).read(np.arange(20)), columns)


def test_a_record_is_its_columns_in_alphabetical_order(tmp_path: Path) -> None:
    columns, shards = write(tmp_path, 20)
    reader = array_record_module.ArrayRecordReader(str(tmp_path / shards.shards[0].name))
    raw = reader.read_all()
    reader.close()
    part = slice(8, 16)
    names = ("amount", "image", "label")
    assert raw[1] == b"".join(columns[n][part].astype(columns[n].dtype.newbyteorder("<")).tobytes() for n in names)
    assert [len(r) for r in raw] == [8 * 18, 8 * 18, 4 * 18]


def test_one_row_a_record_is_a_packed_struct(tmp_path: Path) -> None:
    columns, shards = write(tmp_path, 10, rows_per_record=1)
    reader = array_record_module.ArrayRecordReader(str(tmp_path / shards.shards[0].name))
    packed = np.frombuffer(b"".join(reader.read_all()), [("amount", "<f8"), ("image", "u1", (3, 2)), ("label", "<i4")])
    reader.close()
    for name in FEATURES:
        np.testing.assert_array_equal(packed[name], columns[name])
    assert_equal(shards.read(np.array([9, 0])), columns, np.array([9, 0]))


@pytest.mark.parametrize("cache_bytes", [1, 3 * 8 * 18, 1 << 20])
def test_any_rows_are_read_in_any_order(tmp_path: Path, cache_bytes: int) -> None:
    columns, shards = write(tmp_path, 100)
    shards = Shards(tmp_path, shards.shards, FEATURES, 8, cache_bytes=cache_bytes)
    rng = np.random.default_rng(1)
    for count in (1, 5, 300, 2, 40, 0, 100):
        ids = rng.integers(0, 100, count)
        assert_equal(shards.read(ids), columns, ids)
    assert_equal(shards.read(np.arange(100)[::-1]), columns, np.arange(100)[::-1])


def test_rows_read_are_the_callers_own(tmp_path: Path) -> None:
    columns, shards = write(tmp_path, 20)
    for values in shards.read(np.arange(20)).values():
        values[:] = 0
    assert_equal(shards.read(np.arange(20)), columns)


@pytest.mark.parametrize("ids", [[-1], [100], [0, 5, 101]])
def test_a_row_that_is_not_there(tmp_path: Path, ids: list[int]) -> None:
    with pytest.raises(IndexError):
        write(tmp_path, 100)[1].read(np.array(ids))


def test_threads_share_and_processes_copy(tmp_path: Path) -> None:
    columns, shards = write(tmp_path, 100)
    small = Shards(tmp_path, shards.shards, FEATURES, 8, cache_bytes=2 * 8 * 18)
    wrong: list[Any] = []

    def read(seed: int) -> None:
        try:
            for _ in range(50):
                ids = np.random.default_rng(seed).integers(0, 100, 20)
                assert_equal(small.read(ids), columns, ids)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    copy = pickle.loads(pickle.dumps(small))
    assert_equal(copy.read(np.array([99])), columns, np.array([99]))
    assert len(pickle.dumps(small)) < 5000


def broken(**changes: Any) -> Columns:
    columns = rows(5) | changes
    return {name: values for name, values in columns.items() if values is not None}


@pytest.mark.parametrize(
    ("block", "facts"),
    [
        (broken(label=np.zeros(5, np.int64)), {"field": "label", "got": "int64 [5]", "expected": "int32 [rows]"}),
        (broken(image=np.zeros((5, 2, 3), np.uint8)), {"field": "image", "expected": "uint8 [rows, 3, 2]"}),
        (broken(image=np.zeros(5, np.uint8)), {"field": "image", "got": "uint8 [5]"}),
        (broken(amount=np.zeros(5, ">f8")), {"field": "amount", "got": ">f8 [5]", "expected": "float64 [rows]"}),
        (broken(amount=np.array([None] * 5)), {"field": "amount", "got": "object [5]"}),
        (broken(amount=[0.0] * 5), {"field": "amount", "got": "list []"}),
        (broken(label=np.int32(1)), {"field": "label"}),
        (broken(label=np.zeros(4, np.int32)), {"field": "label", "got": "4"}),
        (broken(label=None), {"missing": "label"}),
        (broken(extra=np.zeros(5)), {"unknown": "extra"}),
    ],
)
def test_a_block_that_does_not_fit(tmp_path: Path, block: Columns, facts: dict[str, str]) -> None:
    with pytest.raises(SchemaError) as caught:
        write_shards(tmp_path, "train", [rows(7), block], FEATURES)
    assert caught.value.facts["row"] == 7
    assert {name: str(caught.value.facts[name]) for name in facts} == facts
    assert list(tmp_path.iterdir()) == []


def test_a_failing_reader_leaves_nothing(tmp_path: Path) -> None:
    def blocks() -> Iterator[Columns]:
        yield rows(100)
        raise OSError("the raw file is gone")

    with pytest.raises(OSError, match="the raw file is gone"):
        write_shards(tmp_path, "train", blocks(), FEATURES, rows_per_record=8, rows_per_shard=32)
    assert list(tmp_path.iterdir()) == []


def test_a_split_without_rows(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match="'train' has no rows"):
        write_shards(tmp_path, "train", [rows(0)], FEATURES)
    assert list(tmp_path.iterdir()) == []


def test_several_splits_in_one_pass(tmp_path: Path) -> None:
    columns = rows(100)
    with ShardWriter(tmp_path, "train", FEATURES) as train, ShardWriter(tmp_path, "test", FEATURES) as test:
        for number, block in enumerate(cut(columns, *[10] * 10)):
            (test if number % 5 == 4 else train).write(block)
        made = {"train": train.finish(), "test": test.finish()}
    chosen = np.arange(100) // 10 % 5 == 4
    for split, ids in {"train": np.flatnonzero(~chosen), "test": np.flatnonzero(chosen)}.items():
        assert_equal(Shards(tmp_path, made[split], FEATURES, 256).read(np.arange(len(ids))), columns, ids)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 8), "rows_per_record"),
        ((8, 20), "multiple of 8"),
        ((1, 65536), "at most 4096"),
        ((2.0, 8), "rows_per_record"),
    ],
)
def test_sizes_that_cannot_work(tmp_path: Path, sizes: tuple[int, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        write_shards(tmp_path, "train", [rows(5)], FEATURES, rows_per_record=sizes[0], rows_per_shard=sizes[1])


def test_a_split_name_that_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="letters, digits"):
        write_shards(tmp_path, "../train", [rows(5)], FEATURES)


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(("damage", "reason"), [(remove, "missing"), (truncate, "size"), (empty, "size")])
def test_a_damaged_shard_is_found_when_opened(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    _, shards = write(tmp_path, 100)
    damage(tmp_path / "train-00001-of-00004.array_record")
    with pytest.raises(ArtifactDamaged, match=reason) as caught:
        Shards(tmp_path, shards.shards, FEATURES, 8)
    assert "train-00001-of-00004.array_record" in str(caught.value)


@pytest.mark.parametrize("damage", [remove, empty])
def test_a_shard_that_goes_while_it_is_read(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    _, shards = write(tmp_path, 100)
    damage(tmp_path / "train-00001-of-00004.array_record")
    shards.read(np.array([0, 99]))
    with pytest.raises(ArtifactDamaged, match="train-00001-of-00004"):
        shards.read(np.array([0, 40]))


def test_a_flipped_byte_is_found_when_read_or_verified(tmp_path: Path) -> None:
    columns = rows(2000)
    made = write_shards(tmp_path, "train", [columns], FEATURES, rows_per_record=500, rows_per_shard=2000)
    path = tmp_path / made[0].name
    at = path.read_bytes().index(columns["amount"][1000:].tobytes()[:64])
    overwrite(path, at)
    shards = Shards(tmp_path, made, FEATURES, 500)
    assert_equal(shards.read(np.array([3, 1900])), columns, np.array([3, 1900]))
    for _ in range(2):  # and the reader is usable afterwards
        with pytest.raises(ArtifactDamaged, match="hash mismatch") as caught:
            shards.read(np.array([3, 1001]))
        assert path.name in str(caught.value)
        assert_equal(shards.read(np.array([5, 1999])), columns, np.array([5, 1999]))
    with pytest.raises(ArtifactDamaged, match="hash mismatch"):
        list(shards.blocks())
    with pytest.raises(ArtifactDamaged, match="other content"):
        shards.verify(full=True)


def test_garbage_of_the_right_size(tmp_path: Path) -> None:
    _, shards = write(tmp_path, 100)
    path = tmp_path / shards.shards[0].name
    path.write_bytes(b"x" * shards.shards[0].bytes)
    with pytest.raises(ArtifactDamaged, match="can't be opened") as caught:
        shards.read(np.array([0]))
    assert path.name in str(caught.value)
    assert "unknown" not in str(caught.value.facts["reason"])


def test_a_manifest_that_lies(tmp_path: Path) -> None:
    _, shards = write(tmp_path, 100)
    more = [*shards.shards[:-1], dataclasses.replace(shards.shards[-1], rows=12)]
    with pytest.raises(DataFormatError, match="number of records"):
        Shards(tmp_path, more, FEATURES, 8).read(np.array([97]))
    shorter = [*shards.shards[:-1], dataclasses.replace(shards.shards[-1], rows=3)]
    with pytest.raises(DataFormatError, match="another length"):
        Shards(tmp_path, shorter, FEATURES, 8).read(np.array([97]))
    with pytest.raises(DataFormatError, match="another length"):
        Shards(tmp_path, shards.shards, FEATURES | {"more": Feature("uint8")}, 8).read(np.array([0]))


@pytest.mark.parametrize("cache", [1, 1 << 28])
def test_shards_that_end_in_short_records_are_read_as_one(tmp_path: Path, cache: int) -> None:
    columns, shards = [], []
    for split, count in (("a", 17), ("b", 8), ("c", 3), ("d", 40)):
        columns.append(rows(count, seed=count))
        shards += write_shards(tmp_path, split, columns[-1:], FEATURES, rows_per_record=8, rows_per_shard=32)
    whole = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    joined = Shards(tmp_path, shards, FEATURES, 8, cache_bytes=cache)
    assert len(joined) == 68
    for ids in (np.arange(68), np.random.default_rng(0).permutation(68), np.array([16, 17, 24, 25, 27, 28, 67, 0])):
        for name, got in joined.read(ids).items():
            np.testing.assert_array_equal(got, whole[name][ids])
    blocks = list(joined.blocks())
    for name, column in whole.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), column)


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from tasks.shard_writer import write_shards
from test_records import FEATURES, cut, rows
def blocks():
    yield from cut(rows(100), 40, 40)
    print("ready", flush=True)
    time.sleep(60)
write_shards(Path(sys.argv[1]), "train", blocks(), FEATURES, rows_per_record=8, rows_per_shard=32)
"""


def test_a_killed_writer_leaves_no_final_name_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    code = KILLED.format(root=str(root), tests=str(root / "tests"))
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "killed")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    names = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert len(names) == 3
    assert all(name.endswith(".partial") for name in names)
    options = {"rows_per_record": 8, "rows_per_shard": 32}
    again = write_shards(tmp_path / "killed", "train", [rows(100)], FEATURES, **options)
    undisturbed = write_shards(tmp_path / "calm", "train", [rows(100)], FEATURES, **options)
    assert again == undisturbed
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [shard.name for shard in again]


def test_fewer_shards_than_before_leave_no_old_ones(tmp_path: Path) -> None:
    write(tmp_path, 100)
    (tmp_path / "train-notes.txt").write_text("kept")
    _, shards = write(tmp_path, 40)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {shard.name for shard in shards.shards} | {"train-notes.txt"}


def test_each_block_is_read_once_while_the_order_stays_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, shards = write(tmp_path, 100)
    small = Shards(tmp_path, shards.shards, FEATURES, 8, cache_bytes=4 * 8 * 18)
    decoded: list[int] = []
    original = small._fill
    monkeypatch.setattr(
        small, "_fill", lambda records, *into: decoded.extend(records.tolist()) or original(records, *into)
    )
    for start in range(0, 96, 24):
        for _ in range(5):
            small.read(np.random.default_rng(start).permutation(24) + start)
    assert decoded == list(range(12))


@pytest.mark.parametrize("cache", [1, 5 * 8 * 18])
def test_few_open_files_do_for_many_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: int) -> None:
    columns, shards = write(tmp_path, 100)
    monkeypatch.setattr(records_module, "MOST_OPEN", 2)
    monkeypatch.setattr(straight_reads, "MOST_OPEN", 1)
    few = Shards(tmp_path, shards.shards, FEATURES, 8, cache_bytes=cache)
    for seed in range(4):
        ids = np.random.default_rng(seed).permutation(100)
        assert_equal(few.read(ids), columns, ids)
        assert (len(few._readers), len(few._straight._files)) <= (2, 1)
