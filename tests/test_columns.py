from __future__ import annotations

import json
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets.errors import ArtifactDamaged, StoreError
from datasets.schema import Columns, Feature
from tasks import columns as columns_module
from tasks.columns import MANIFEST, MappedColumns, build_columns
from tasks.records import Shards
from tasks.shard_writer import write_shards

FEATURES = {"image": Feature("uint8", (3, 2)), "label": Feature("int32"), "a/b %": Feature("float64")}
ROWS = 100


def rows(seed: int = 0) -> Columns:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (ROWS, 3, 2), dtype=np.uint8),
        "label": rng.integers(-5, 5, ROWS, dtype=np.int32),
        "a/b %": rng.normal(size=ROWS),
    }


def shards_of(folder: Path, columns: Columns, rows_per_shard: int = 32) -> Shards:
    made = write_shards(folder, "train", [columns], FEATURES, rows_per_record=8, rows_per_shard=rows_per_shard)
    return Shards(folder, made, FEATURES, 8)


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    return shards_of(tmp_path / "shards", rows())


@pytest.fixture
def built(tmp_path: Path, shards: Shards) -> MappedColumns:
    build_columns(shards, tmp_path / "cache" / "columns")
    return MappedColumns(tmp_path / "cache" / "columns")


def assert_reads(mapped: MappedColumns, expected: Columns) -> None:
    ids = np.array([99, 0, 0, 37])
    got = mapped.read(ids)
    assert set(got) == set(expected)
    for name, values in expected.items():
        assert got[name].dtype == values.dtype
        np.testing.assert_array_equal(got[name], values[ids])


def test_columns_hold_the_rows_of_the_shards(built: MappedColumns) -> None:
    assert len(built) == ROWS
    assert built.features == dict(sorted(FEATURES.items()))
    assert_reads(built, rows())
    built.verify(full=True)


def test_files_are_plain_npy(built: MappedColumns) -> None:
    assert sorted(path.name for path in built.folder.iterdir()) == [
        "a%2Fb%20%25.npy", MANIFEST, "image.npy", "label.npy"
    ]  # fmt: skip
    np.testing.assert_array_equal(np.load(built.folder / "image.npy"), rows()["image"])


def test_what_is_read_is_the_callers_own_and_the_files_are_not_written(built: MappedColumns) -> None:
    got = built.read(np.arange(ROWS))
    for values in got.values():
        assert type(values) is np.ndarray
        values[:] = 0
    assert_reads(built, rows())
    built.verify(full=True)


@pytest.mark.parametrize("ids", [[-1], [ROWS], [0, 5, ROWS + 1]])
def test_a_row_that_is_not_there(built: MappedColumns, ids: list[int]) -> None:
    with pytest.raises(IndexError):
        built.read(np.array(ids))


def test_a_pickled_copy_maps_the_same_files(built: MappedColumns) -> None:
    data = pickle.dumps(built)
    assert len(data) < 500
    assert_reads(pickle.loads(data), rows())


def test_the_digest_is_of_the_rows_not_of_the_shards(tmp_path: Path, built: MappedColumns) -> None:
    one = shards_of(tmp_path / "one", rows(), rows_per_shard=128)
    other = shards_of(tmp_path / "other", rows(1))
    assert len(one.shards) == 1
    build_columns(one, tmp_path / "columns-one")
    build_columns(other, tmp_path / "columns-other")
    assert MappedColumns(tmp_path / "columns-one").digest == built.digest
    assert MappedColumns(tmp_path / "columns-other").digest != built.digest


def test_built_once(tmp_path: Path, shards: Shards, built: MappedColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_write", lambda *_: pytest.fail("decoded twice"))
    build_columns(shards, built.folder)
    assert_reads(built, rows())


def test_of_other_shards_is_replaced(tmp_path: Path, built: MappedColumns) -> None:
    build_columns(shards_of(tmp_path / "other", rows(1)), built.folder)
    assert_reads(MappedColumns(built.folder), rows(1))


def remove_column(folder: Path) -> None:
    (folder / "image.npy").unlink()


def cut_column(folder: Path) -> None:
    (folder / "image.npy").write_bytes((folder / "image.npy").read_bytes()[:-1])


def remove_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def cut_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:-30])


def strip_manifest(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["columns"][0]["sha256"]
    (folder / MANIFEST).write_text(json.dumps(manifest))


def other_dtype(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["columns"][1]["dtype"] = "|i1"
    (folder / MANIFEST).write_text(json.dumps(manifest))


def other_format(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": 99}))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (remove_column, "image.npy"), (cut_column, "image.npy"), (remove_manifest, MANIFEST), (cut_manifest, MANIFEST),
        (strip_manifest, "sha256"), (other_dtype, "image"), (other_format, "99"), (shutil.rmtree, MANIFEST),
    ],
)  # fmt: skip
def test_damage_is_named_and_rebuilt(
    shards: Shards, built: MappedColumns, damage: Callable[[Path], None], named: str
) -> None:
    damage(built.folder)
    with pytest.raises(ArtifactDamaged, match=named):
        MappedColumns(built.folder)
    build_columns(shards, built.folder)
    assert_reads(MappedColumns(built.folder), rows())


def test_a_flipped_byte_is_found_by_full_verification(built: MappedColumns) -> None:
    path = built.folder / "image.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    built.verify(full=False)
    with pytest.raises(ArtifactDamaged, match="other content") as caught:
        built.verify(full=True)
    assert str(path) in str(caught.value)


def test_a_flipped_byte_is_found_before_the_columns_are_relied_on(
    shards: Shards, built: MappedColumns, said: pytest.LogCaptureFixture
) -> None:
    def flip() -> None:
        data = bytearray((built.folder / "image.npy").read_bytes())
        data[-1] ^= 1
        (built.folder / "image.npy").write_bytes(bytes(data))

    for _ in range(2):  # also by a process that found them right before
        flip()
        build_columns(shards, built.folder)
        assert_reads(MappedColumns(built.folder), rows())
        assert "image.npy" in said.text
        said.clear()
        build_columns(shards, built.folder)
        assert said.text == ""


def test_every_byte_is_read_once_by_a_process(
    shards: Shards, built: MappedColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_columns(shards, built.folder)
    monkeypatch.setattr(columns_module, "sha256_file", lambda path: pytest.fail("read again"))
    build_columns(shards, built.folder)


def test_a_damaged_shard_leaves_no_columns(tmp_path: Path, shards: Shards) -> None:
    path = shards.folder / shards.shards[2].name
    path.write_bytes(b"x" * shards.shards[2].bytes)
    with pytest.raises(ArtifactDamaged, match=path.name):
        build_columns(shards, tmp_path / "columns")
    assert {p.name for p in tmp_path.iterdir()} == {"shards", ".columns.lock"}


def test_a_full_disk_is_an_error_and_leaves_no_columns(
    tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columns_module, "write_json", full)
    with pytest.raises(StoreError, match="No space left"):
        build_columns(shards, tmp_path / "columns")
    assert {p.name for p in tmp_path.iterdir()} == {"shards", ".columns.lock"}


def test_what_a_killed_builder_left_is_removed(tmp_path: Path, shards: Shards) -> None:
    leftover = tmp_path / ".columns.partial"
    leftover.mkdir()
    (leftover / "image.npy").write_bytes(b"half")
    build_columns(shards, tmp_path / "columns")
    assert not leftover.exists()
    assert_reads(MappedColumns(tmp_path / "columns"), rows())


def test_two_builders_at_once_decode_once(tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each opens the lock file anew, so threads exclude each other just as processes do.
    original, together, times = columns_module._write, threading.Barrier(2), []

    def write(made_from: Shards, folder: Path) -> None:
        times.append(folder)
        original(made_from, folder)

    def build() -> None:
        together.wait()
        build_columns(shards, tmp_path / "columns")
        assert_reads(MappedColumns(tmp_path / "columns"), rows())

    monkeypatch.setattr(columns_module, "_write", write)
    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1
    assert_reads(MappedColumns(tmp_path / "columns"), rows())
