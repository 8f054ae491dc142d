"""Parquet files and folders: types that differ by file, markers, damage, partitions, bounded memory."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_cases import FLOAT, LABEL, WHOLE, fails, together

from datasets.errors import DataFormatError, SchemaError
from datasets.readers import parquet
from datasets.schema import Block, Feature


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_parquet_files_of_different_types_in_any_order(tmp_path: Path, names: tuple[str, str]) -> None:
    label = pa.array([0, 1], pa.int64())
    pq.write_table(pa.table({"x": pa.nulls(2), "label": label}), tmp_path / f"{names[0]}.parquet")
    pq.write_table(pa.table({"x": [1.5, 2.5], "label": label}), tmp_path / f"{names[1]}.parquet")
    features = {"x": FLOAT, "label": LABEL}
    got = together(list(parquet.blocks(tmp_path, "", features, fill={"x": math.nan})))
    assert got["label"].tolist() == [0, 1, 0, 1]
    assert sorted(got["x"][~np.isnan(got["x"])]) == [1.5, 2.5]
    fails(
        SchemaError, lambda: list(parquet.blocks(tmp_path, "", features)),
        "column 'x': 2 null", f"file: {names[0]}.parquet", "row: 0",
    )  # fmt: skip


def test_parquet_with_a_name_twice(tmp_path: Path) -> None:
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([0]), pa.array([2])], ["x", "label", "x"]), tmp_path / "t.parquet"
    )
    fails(
        SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT})),
        "duplicate column 'x' at positions 0 and 2", "t.parquet",
    )  # fmt: skip


# --- folders (C9), damage, partitions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").write_bytes(b"crc")
    pq.write_table(
        pa.table({"x": pa.array([], pa.float64()), "label": pa.array([], pa.int64())}), tmp_path / "none.parquet"
    )
    return tmp_path


def read_folder(folder: Path) -> list[Block]:
    return list(parquet.blocks(folder, "", {"x": FLOAT, "label": LABEL}))


def test_markers_are_no_data_and_an_empty_file_is_seen(folder: Path) -> None:
    assert [(block.file, len(block.columns["x"])) for block in read_folder(folder)] == [
        ("a.parquet", 2),
        ("none.parquet", 0),
    ]
    (folder / "a.parquet").unlink()
    fails(DataFormatError, lambda: read_folder(folder), "0 records")


def test_an_empty_or_cut_file_is_found_before_the_first_block(folder: Path) -> None:
    whole = (folder / "a.parquet").read_bytes()
    for data, fact in (
        (b"", "0 bytes"),
        (whole[:-1], "footer missing"),
        (whole[:-8] + b"\xff\xff\xff\x7fPAR1", "not a Parquet"),
    ):
        (folder / "z.parquet").write_bytes(data)
        fails(DataFormatError, lambda: next(parquet.blocks(folder, "", {"x": FLOAT})), fact, "z.parquet")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    pool = pa.default_memory_pool()

    def peak(groups: int) -> int:
        pq.write_table(
            pa.table({"x": np.random.default_rng(0).random(groups * 20_000)}), tmp_path / "t.parquet",
            row_group_size=20_000, use_dictionary=False, compression="none",
        )  # fmt: skip
        before = pool.bytes_allocated()
        blocks = parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT}, rows=10_000)
        return max(pool.bytes_allocated() - before for _ in blocks)

    assert 0 < peak(40) < 2 * peak(4)


def test_a_damaged_page_names_its_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "t.parquet", compression="zstd", use_dictionary=False)
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[60:200] = b"\xff" * 140
    (tmp_path / "t.parquet").write_bytes(data)
    fails(
        DataFormatError,
        lambda: list(parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT})),
        "damaged Parquet",
        "t.parquet",
    )


def test_hive_partitions_are_text_columns(tmp_path: Path) -> None:
    for year, kind in ((2023, "a%20b"), (2024, "c")):
        part = tmp_path / "data" / f"year={year}" / f"kind={kind}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"x": [float(year), 1.0]}), part / "p.parquet")
    features = {"x": FLOAT, "year": WHOLE, "kind": Feature("int32", classes=("c", "a b"))}
    blocks = list(parquet.blocks(tmp_path, "data", features))
    assert [block.file for block in blocks] == [
        "data/year=2023/kind=a%20b/p.parquet",
        "data/year=2024/kind=c/p.parquet",
    ]
    got = together(blocks)
    assert got["year"].tolist() == [2023, 2023, 2024, 2024]
    assert got["kind"].tolist() == [1, 1, 0, 0]
    only = together(list(parquet.blocks(tmp_path, "data", {"year": WHOLE})))
    assert only["year"].tolist() == [2023, 2023, 2024, 2024]
