from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import mixed
import numpy as np
import promoted
import pytest

from datasets.errors import FetchError, NoRecordsError, SchemaError
from datasets.readers import parquet
from datasets.schema import Block, ByHash, RawFile, Source, Validation
from tasks.raw_rows import RawRows, stamps


def rows_of(path: Path, folder: Path, **changes: Any) -> tuple[RawRows, list[Block]]:
    folder.mkdir(exist_ok=True)
    rows = RawRows(promoted.dataset(**changes), path, folder)
    return rows, list(rows.blocks())


def ids(blocks: list[Block]) -> list[tuple[str, int]]:
    return [(block.file, block.row + i) for block in blocks for i in range(len(block.columns["amount"]))]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return promoted.write_rows(tmp_path / "raw" / "night.parquet", mixed.table(120))


def test_a_file_and_its_folder_give_the_same_rows(raw: Path, tmp_path: Path) -> None:
    rows, alone = rows_of(raw, tmp_path / "work")
    _, whole = rows_of(raw.parent, tmp_path / "work")
    assert ids(alone) == ids(whole) == [("night.parquet", i) for i in range(120)]
    assert "label" not in alone[0].columns
    np.testing.assert_array_equal(np.concatenate([b.columns["shop"] for b in alone]), mixed.table(120)["shop"])
    assert (rows.rows, rows.quarantined) == (120, 0)
    assert not list((tmp_path / "work").iterdir())


def test_a_reader_that_names_its_file_finds_it_under_any_name(raw: Path, tmp_path: Path) -> None:
    def read(folder: Path) -> Any:
        return parquet.blocks(folder, "train.parquet", mixed.FEATURES, columns={"three": ("a", "b", "c")})

    source = Source(files=(RawFile("train.parquet"),), folder="somewhere")
    _, blocks = rows_of(raw, tmp_path / "work", read=read, source=source)
    assert ids(blocks)[0] == ("night.parquet", 0)


def test_files_that_are_converted_one_by_one_are_read_so(raw: Path, tmp_path: Path) -> None:
    shutil.copy(raw, raw.with_name("day.parquet"))
    seen = []

    def read(folder: Path) -> Any:
        seen.append([path.name for path in folder.iterdir()])
        return promoted.read(folder)

    changes = {"read": read, "by_file": True, "splits": ByHash("shop", {"train": 0.5, "test": 0.5})}
    single = {"transforms": {}, "inputs": "three"}
    _, blocks = rows_of(raw.parent, tmp_path / "work", **changes, **single)
    assert seen == [["day.parquet"], ["night.parquet"]]
    assert len(ids(blocks)) == 240


def test_notes_and_markers_beside_them_are_passed_over(raw: Path, tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".night.crc", "notes.md", "_temporary/night.parquet"):
        (raw.parent / name).parent.mkdir(exist_ok=True)
        (raw.parent / name).write_bytes(raw.read_bytes())
    changes = {"by_file": True, "splits": ByHash("shop", {"train": 0.5, "test": 0.5})}
    rows, blocks = rows_of(raw.parent, tmp_path / "work", **changes, transforms={}, inputs="three")
    assert {block.file for block in blocks} == {"night.parquet"}
    assert rows.rows == 120


def test_a_file_that_goes_meanwhile_is_no_note(raw: Path, tmp_path: Path) -> None:
    shutil.copy(raw, raw.with_name("day.parquet"))

    def read(folder: Path) -> Any:
        yield from promoted.read(folder)
        raw.unlink(missing_ok=True)  # while the first of two is read

    changes = {"read": read, "by_file": True, "splits": ByHash("shop", {"train": 0.5, "test": 0.5})}
    with pytest.raises(FetchError):
        rows_of(raw.parent, tmp_path / "work", **changes, transforms={}, inputs="three")


def test_archives_are_unpacked(raw: Path, tmp_path: Path) -> None:
    packed = tmp_path / "night.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.write(raw, "inside.parquet")
    source = Source(folder="somewhere", pattern="**", unpack=True)
    _, blocks = rows_of(packed, tmp_path / "work", source=source)
    assert ids(blocks)[-1] == ("night/inside.parquet", 119)


def bad_rows() -> Any:
    made = mixed.table(120)
    made["amount"][[3, 50, 51]] = [-7, np.inf, -9]
    return made


def test_bad_rows_are_set_aside_with_reasons(tmp_path: Path) -> None:
    raw = promoted.write_rows(tmp_path / "raw.parquet", bad_rows())
    rows, blocks = rows_of(raw, tmp_path / "work")
    assert ids(blocks) == [("raw.parquet", i) for i in range(120) if i not in (3, 50, 51)]
    assert (rows.rows, rows.quarantined) == (120, 3)
    lines = [json.loads(line) for line in (tmp_path / "work" / "quarantine.jsonl").read_text().splitlines()]
    assert sorted((line["row"], line["field"]) for line in lines) == [(3, "amount"), (50, "amount"), (51, "amount")]
    assert sum(rows.reasons.values()) == 3


def test_too_many_bad_rows_end_it(tmp_path: Path) -> None:
    raw = promoted.write_rows(tmp_path / "raw.parquet", bad_rows())
    with pytest.raises(SchemaError, match="more rows are bad"):
        rows_of(raw, tmp_path / "work", validation=Validation(on_bad="quarantine", most_bad=0.001))


def test_by_default_the_first_bad_row_ends_it(tmp_path: Path) -> None:
    made = bad_rows()
    made["amount"][50] = 1.0
    raw = promoted.write_rows(tmp_path / "raw.parquet", made)
    with pytest.raises(SchemaError, match="out of range") as caught:
        rows_of(raw, tmp_path / "work", validation=Validation())
    assert {name: caught.value.facts[name] for name in ("file", "row", "field", "got")} == {
        "file": "raw.parquet", "row": 3, "field": "amount", "got": -7.0,
    }  # fmt: skip


def test_a_reader_that_gives_something_else_is_named(raw: Path, tmp_path: Path) -> None:
    def read(folder: Path) -> Any:
        for block in promoted.read(folder):
            yield replace(block, columns={**block.columns, "amount": block.columns["amount"].astype(np.float64)})

    with pytest.raises(SchemaError, match="stated layout") as caught:
        rows_of(raw, tmp_path / "work", read=read)
    assert (caught.value.facts["field"], caught.value.facts["got"]) == ("amount", "float64[]")


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FetchError):
        rows_of(tmp_path / "nowhere", tmp_path / "work")
    with pytest.raises(NoRecordsError):
        rows_of(tmp_path, tmp_path / "work", read=lambda folder: iter(()))


def test_stamps_change_with_names_sizes_and_times(raw: Path) -> None:
    before = stamps(raw.parent)
    assert stamps(raw.parent) == before
    assert before[0][0] == "raw/night.parquet"
    promoted.write_rows(raw, mixed.table(10))
    assert stamps(raw.parent) != before
    assert stamps(raw) == [["night.parquet", *stamps(raw.parent)[0][1:]]]
