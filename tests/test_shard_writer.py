"""Features of varying length in records, and the two ways to look after full shards."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.errors import DataFormatError, SchemaError, StoreError
from datasets.ragged import Ragged
from datasets.readers import delimited, jsonl, parquet
from datasets.schema import Feature
from tasks.columns import MappedColumns, build_columns
from tasks.records import Shard, Shards
from tasks.shard_writer import ShardWriter, write_shards

FEATURES = {
    "text": Feature("string"), "blob": Feature("bytes"), "list": Feature("float32", (None,)), "n": Feature("int64"),
}  # fmt: skip
ROWS = 150


def columns(rows: int = ROWS) -> dict[str, Any]:
    return {
        "n": np.arange(rows), "text": Ragged.of_items(["zeichen é" * (i % 5) for i in range(rows)], of="string"),
        "blob": Ragged.of_items([bytes(range(i % 9)) for i in range(rows)], of="bytes"),
        "list": Ragged.of_items([np.arange(i % 7) / 3 for i in range(rows)], "float32"),
    }  # fmt: skip


def cut(whole: dict[str, Any], *lengths: int) -> list[dict[str, Any]]:
    stops = np.cumsum(lengths).tolist()
    return [{k: v[stop - n : stop] for k, v in whole.items()} for stop, n in zip(stops, lengths, strict=True)]


def write(folder: Path, blocks: list[dict[str, Any]], **options: Any) -> list[Shard]:
    with ShardWriter(folder, "train", FEATURES, rows_per_record=8, rows_per_shard=32, **options) as writer:
        for block in blocks:
            writer.write(block)
        return writer.finish()


def test_lengths_that_vary_come_back_whatever_the_blocks_were(tmp_path: Path) -> None:
    whole = columns()
    shards = write(tmp_path / "a", [whole])
    assert write(tmp_path / "b", cut(whole, 3, 70, 1, 0, 76)) == shards
    assert len(shards) == 5
    read = Shards(tmp_path / "a", shards, FEATURES, 8)
    blocks: list[dict[str, Any]] = list(read.blocks())
    for name in ("text", "blob", "list"):
        assert Ragged.joined([block[name] for block in blocks]) == whole[name]


def test_a_batch_is_made_of_the_other_features(tmp_path: Path) -> None:
    shards = Shards(tmp_path / "a", write(tmp_path / "a", [columns()]), FEATURES, 8)
    assert list(shards.features) == ["n"]
    ids = np.array([140, 3, 77])
    assert {name: column.tolist() for name, column in shards.read(ids).items()} == {"n": [140, 3, 77]}
    build_columns(shards, tmp_path / "columns")
    mapped = MappedColumns(tmp_path / "columns")
    assert {name: column.tolist() for name, column in mapped.read(ids).items()} == {"n": [140, 3, 77]}


@pytest.mark.parametrize("change", [{"text": np.zeros(3, "U1")}, {"list": Ragged.of_items([[1]] * 3, "float64")},
                                    {"blob": Ragged.of_items(["a"] * 3, of="string")}])  # fmt: skip
def test_a_column_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="isn't what its feature says") as caught:
        write(tmp_path, [{**columns(3), **change}])
    assert caught.value.facts["field"] in change


def test_a_record_whose_lengths_do_not_add_up(tmp_path: Path) -> None:
    made = write(tmp_path, [columns(8)])
    more = {**FEATURES, "more": Feature("bytes")}
    with pytest.raises(DataFormatError, match="another length"):
        list(Shards(tmp_path, made, more, 8).blocks())
    fewer = {name: feature for name, feature in FEATURES.items() if name != "text"}
    with pytest.raises(DataFormatError, match="another length"):
        list(Shards(tmp_path, made, fewer, 8).blocks())


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_readers_give_texts_and_lists_as_they_are(tmp_path: Path, kind: str) -> None:
    texts, lists = ["NA", "", "döner", "a,b"] * 20, [[1.5], [], [2, 3], [4]] * 20
    features = {"text": Feature("string"), **({} if kind == "csv" else {"list": Feature("float32", (None,))})}
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts, "list": lists}), tmp_path / "a.parquet")
        blocks = list(parquet.blocks(tmp_path, "a.parquet", features, rows=7))
    elif kind == "csv":
        lines = [f'"{text}",{i}' for i, text in enumerate(texts)]
        (tmp_path / "a.csv").write_text("text,i\n" + "\n".join(lines) + "\n", encoding="utf-8")
        blocks = list(delimited.blocks(tmp_path, "a.csv", features, rows=7))
    else:
        rows = [json.dumps({"text": text, "list": some}) for text, some in zip(texts, lists, strict=True)]
        (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        blocks = list(jsonl.blocks(tmp_path, "a.jsonl", features, rows=7))
    got: list[Any] = [block.columns for block in blocks]
    assert Ragged.joined([one["text"] for one in got]) == Ragged.of_items(texts, of="string")
    if kind != "csv":
        assert Ragged.joined([one["list"] for one in got]) == Ragged.of_items(lists, "float32")


def test_a_null_and_a_nan_in_a_list_are_placed(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", None, "c"], "list": [[1.0], [2.0, 3.0], [4.0, float("nan")]]})
    pq.write_table(table, tmp_path / "a.parquet")
    for name, row in (("text", "1 "), ("list", "2 ")):
        features = {name: Feature("string") if name == "text" else Feature("float64", (None,))}
        with pytest.raises(SchemaError) as caught:
            list(parquet.blocks(tmp_path, "a.parquet", features))
        assert caught.value.facts["row"].startswith(row)


@pytest.mark.parametrize("beside", [True, False])
def test_full_shards_are_hashed_and_synced_once(tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    shards = write(tmp_path, [columns()], beside=beside)
    for shard in shards:
        assert hashlib.sha256((tmp_path / shard.name).read_bytes()).hexdigest() == shard.sha256
    assert sorted(Path(name).suffix for name in synced) == ["", *[".partial"] * 5]  # and the folder


@pytest.mark.parametrize("beside", [True, False])
def test_what_goes_wrong_with_a_full_shard_ends_the_writing(
    tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreError, match="can't be written") as caught:
        write(tmp_path, [columns()], beside=beside)
    assert "No space left" in caught.value.facts["reason"]
    assert not list(tmp_path.iterdir())


def test_the_same_rows_give_the_same_bytes_again(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rows_per_record": 8, "rows_per_shard": 32}
    first = write_shards(tmp_path / "a", "train", [columns()], FEATURES, **options)
    assert write_shards(tmp_path / "b", "train", [columns()], dict(reversed(FEATURES.items())), **options) == first
