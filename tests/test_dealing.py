from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from datasets.errors import SchemaError
from datasets.schema import Block, ByFraction, ByHash, Feature, Rows
from tasks.dealing import ORIGIN, Dealt, deal, drawn_over, note_origin, origin_of, rows_of_a_shard
from tasks.durable import read_json


def dealt(folder: Path, **changes: Any) -> Dealt:
    made = toy.dataset(**changes)
    return deal(made, toy.reader_of(toy.pictures())(folder), folder)


@pytest.mark.parametrize(
    ("calls", "runs"),
    [([("a", 0, [0, 1, 2])], [["a", 0, 3]]), ([("a", 5, [0, 2, 3, 7])], [["a", 5, 1], ["a", 7, 2], ["a", 12, 1]]),
     ([("a", 0, [0, 1]), ("a", 2, [0, 1])], [["a", 0, 4]]),
     ([("a", 0, [0, 1]), ("b", 2, [0])], [["a", 0, 2], ["b", 2, 1]]),
     ([("a", 0, [1]), ("a", 2, [1])], [["a", 1, 1], ["a", 3, 1]])],
)  # fmt: skip
def test_runs_of_raw_rows(calls: list[tuple[str, int, list[int]]], runs: list[list[Any]]) -> None:
    origin: list[list[Any]] = []
    for file, first, at in calls:
        note_origin(origin, file, first, np.array(at))
    assert origin == runs
    places = [(file, first + row) for file, first, at in calls for row in at]
    assert [origin_of(origin, i) for i in range(len(places))] == places


def test_rows_in_no_split_are_counted_and_a_split_may_stay_empty(tmp_path: Path) -> None:
    made = dealt(tmp_path, splits={"train": Rows(10, 50), "test": Rows(45, 60), "late": Rows(500, 600)})
    assert (made.rows, made.left_out, made.quarantined) == (200, 150, 0)
    assert {split: sum(shard["rows"] for shard in shards) for split, shards in made.shards.items()} == {
        "train": 40, "test": 15, "late": 0,
    }  # fmt: skip
    assert read_json(tmp_path / ORIGIN) == {"train": [["raw", 10, 40]], "test": [["raw", 45, 15]], "late": []}


def test_only_a_split_by_fraction_needs_a_pass_before(tmp_path: Path) -> None:
    blocks = toy.reader_of(toy.pictures())(tmp_path)
    assert drawn_over(toy.dataset(splits=ByHash("label", {"train": 0.5, "test": 0.5})), blocks) is None
    halves = ByFraction({"train": 0.5, "test": 0.5})
    drawn = drawn_over(toy.dataset(splits=halves), blocks)
    assert np.bincount(drawn if drawn is not None else []).tolist() == [100, 100]


def test_a_block_whose_columns_differ_in_length_is_refused(tmp_path: Path) -> None:
    columns = {"image": np.zeros((3, 9, 8, 1), np.uint8), "label": np.zeros(2, np.int32)}
    with pytest.raises(SchemaError, match="different lengths") as caught:
        deal(toy.dataset(), [Block(columns, "raw", 4)], tmp_path)
    assert (caught.value.facts["file"], caught.value.facts["row"]) == ("raw", 4)
    assert not list(tmp_path.glob("*.array_record"))


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((), 262_144), ((28, 28, 1), 262_144), ((32, 32, 3), 87_296), ((224, 224, 3), 1_536), ((2000, 2000, 3), 256)],
)
def test_a_shard_has_about_a_quarter_of_a_gigabyte(shape: tuple[int, ...], rows: int) -> None:
    assert rows_of_a_shard({"x": Feature("uint8", shape)}) == rows
