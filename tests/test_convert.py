from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from datasets.errors import GristmillError, SchemaError, SplitError
from datasets.schema import Block, ByFraction, ByHash, ByTime, Columns, Feature, Files, Rows, Validation
from tasks import convert as stage
from tasks.artifact import Artifact, Store
from tasks.convert import ORIGIN, ROWS_PER_RECORD, origin_of
from tasks.durable import read_json
from tasks.request import Request
from tasks.validate import open_split


def convert(store: Path, **changes: Any) -> tuple[Artifact, Request]:
    request = toy.request_for(store, toy.dataset(**changes))
    return toy.records_of(request), request


def rows_of(request: Request, records: Artifact, split: str) -> Columns:
    store = Store(request.store)
    shards = open_split(store.path(records), store.facts(records), split, request.dataset.features)
    parts = list(shards.blocks())
    return {name: np.concatenate([part[name] for part in parts]) for name in request.dataset.features}


def content(request: Request, records: Artifact) -> dict[str, bytes]:
    files = toy.files_below(Store(request.store).path(records))
    del files["manifest.json"]  # it has the time
    return files


def numbered(rows: int, **columns: Any) -> Columns:
    """Rows that can be told apart: the first two pixels hold their number."""
    made = toy.pictures(rows)
    made["image"][:, 0, 0, 0], made["image"][:, 0, 1, 0] = np.arange(rows) // 256, np.arange(rows) % 256
    return {**made, **columns}


def numbers(columns: Columns) -> list[int]:
    return (columns["image"][:, 0, 0, 0].astype(int) * 256 + columns["image"][:, 0, 1, 0]).tolist()


def files_reader(columns: Columns, files: dict[str, int], rows: int = 64) -> Any:
    """Several raw files, one after the other, each counted from row 0."""

    def read(raw: Path) -> Iterator[Block]:
        at = 0
        for file, count in files.items():
            part = {name: c[at : at + count] for name, c in columns.items()}
            yield from toy.reader_of(part, rows, file)(raw)
            at += count

    return read


# --------------------------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize(
    ("train", "test"),
    [(Rows(0, 500), Rows(500, 700)), (Rows(1, 258), Rows(300, 301)), (Rows(64, 128), Rows(0, 64)),
     (Rows(0, 256), Rows(256, 512))],
)  # fmt: skip
def test_a_split_by_rows_has_exactly_these_rows(tmp_path: Path, train: Rows, test: Rows) -> None:
    columns = numbered(700)
    splits = {"train": train, "test": test}
    records, request = convert(tmp_path, read=toy.reader_of(columns), splits=splits)
    facts = Store(tmp_path).facts(records)
    for split, rule in splits.items():
        got = rows_of(request, records, split)
        assert numbers(got) == list(range(rule.start, rule.stop))
        for name, column in columns.items():
            np.testing.assert_array_equal(got[name], column[rule.start : rule.stop])
            assert got[name].dtype == column.dtype
        assert facts["splits"][split]["rows"] == rule.stop - rule.start
    assert facts["rows_per_record"] == ROWS_PER_RECORD
    assert facts["features"] == {
        "image": {"dtype": "|u1", "shape": [9, 8, 1]}, "label": {"dtype": "<i4", "shape": []},
    }  # fmt: skip


def test_a_split_by_files_has_every_row_of_these_files(tmp_path: Path) -> None:
    read = files_reader(numbered(330), {"train-a": 100, "test-a": 80, "train-b": 150})
    splits = {"train": Files("train-", 250), "test": Files("test-", 80)}
    records, request = convert(tmp_path, read=read, splits=splits)
    assert numbers(rows_of(request, records, "train")) == [*range(100), *range(180, 330)]
    assert numbers(rows_of(request, records, "test")) == list(range(100, 180))


def test_the_raw_data_is_read_once(tmp_path: Path) -> None:
    passes: list[Path] = []
    columns = toy.pictures()

    def read(raw: Path) -> Iterator[Block]:
        passes.append(raw)
        yield from toy.reader_of(columns)(raw)

    _, request = convert(tmp_path, read=read)
    assert passes == [Store(tmp_path).path(toy.no_raw(request))]


@pytest.mark.parametrize(
    ("splits", "said"),
    [({"train": Rows(0, 150), "test": Rows(150, 201)}, "'test' has another number of rows"),
     ({"train": Rows(0, 150), "test": Rows(200, 250)}, "'test'"),
     ({"train": Rows(0, 150), "test": Rows(60, 60)}, "'test'"),
     ({"train": Files("raw", 199), "test": Rows(0, 10)}, "'train' has another number of rows"),
     ({"train": Rows(0, 150), "test": Files("none-")}, "'test'")],
)  # fmt: skip
def test_an_empty_or_short_split_is_named(tmp_path: Path, splits: Any, said: str) -> None:
    with pytest.raises(SplitError, match=said):
        convert(tmp_path, read=toy.reader_of(toy.pictures()), splits=splits)
    assert not list(tmp_path.glob("records/*/*"))
    assert not list((tmp_path / "tmp").iterdir())


LABELS: np.ndarray = toy.pictures(700)["label"]
RULES: dict[str, Any] = {
    "fraction": ByFraction({"train": 0.7, "test": 0.2}, seed=1),
    "stratified": ByFraction({"train": 0.7, "test": 0.2}, seed=1, stratify="label"),
    "hash": ByHash("user", {"train": 0.7, "test": 0.2}),
    "time": ByTime("user", {"train": (None, 20), "test": (25, None)}),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("block", [64, 333])
def test_a_rule_for_all_splits_deals_out_rows_with_their_origin(tmp_path: Path, rule: str, block: int) -> None:
    columns = numbered(700, user=np.random.default_rng(0).integers(0, 30, 700).astype(np.int32))
    features = {
        "image": Feature("uint8", (9, 8, 1)), "label": Feature("int32", classes=toy.CLASSES), "user": Feature("int32"),
    }  # fmt: skip
    read = files_reader(columns, {"a": 300, "b": 400}, block)
    records, request = convert(tmp_path, read=read, features=features, splits=RULES[rule])
    origin = read_json(Store(tmp_path).path(records) / ORIGIN)
    got = {split: rows_of(request, records, split) for split in ("train", "test")}
    rows = {split: numbers(got[split]) for split in got}
    for split, part in got.items():
        for name, column in columns.items():
            np.testing.assert_array_equal(part[name], column[rows[split]])
        places = [origin_of(origin[split], i) for i in range(len(rows[split]))]
        assert places == [("a", row) if row < 300 else ("b", row - 300) for row in rows[split]]
    assert not set(rows["train"]) & set(rows["test"])
    users = {split: set(columns["user"][rows[split]].tolist()) for split in got}
    if rule in {"fraction", "stratified"}:
        assert (len(rows["train"]), len(rows["test"])) == (490, 140) if rule == "fraction" else (490, 141)
    if rule == "stratified":
        for kind in range(3):
            assert np.count_nonzero(LABELS[rows["train"]] == kind) == round(np.count_nonzero(kind == LABELS) * 0.7)
    if rule == "hash":
        assert not users["train"] & users["test"]
    if rule == "time":
        assert users == {"train": set(range(20)), "test": set(range(25, 30))}


def test_a_split_by_fraction_that_gets_no_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match=r"'test' has 0 records: 200 x 0.001"):
        convert(tmp_path, read=toy.reader_of(toy.pictures()), splits=ByFraction({"train": 0.999, "test": 0.001}))
    assert not list(tmp_path.glob("records/*/*"))


@pytest.mark.parametrize("rule", [ByHash("user", {"train": 0.5, "test": 0.5}), ByFraction({"train": 0.5, "test": 0.5},
                                                                                         stratify="user")])  # fmt: skip
def test_a_key_column_that_the_reader_does_not_give_is_named(tmp_path: Path, rule: Any) -> None:
    features = {**toy.dataset().features, "user": Feature("int32")}
    with pytest.raises(SchemaError, match="'user', which decides the split"):
        convert(tmp_path, read=toy.reader_of(toy.pictures()), features=features, splits=rule)


# --------------------------------------------------------------------------------------------------------------- origin


def test_the_origin_of_an_example_is_its_raw_file_and_row(tmp_path: Path) -> None:
    read = files_reader(numbered(330), {"train-a": 100, "test-a": 80, "train-b": 150})
    records, _ = convert(tmp_path, read=read, splits={"train": Files("train-"), "test": Rows(120, 170)})
    origin = read_json(Store(tmp_path).path(records) / ORIGIN)
    assert origin == {"train": [["train-a", 0, 100], ["train-b", 0, 150]], "test": [["test-a", 20, 50]]}
    train = origin["train"]
    places = {0: ("train-a", 0), 99: ("train-a", 99), 100: ("train-b", 0), 249: ("train-b", 149)}
    assert {example: origin_of(train, example) for example in places} == places
    assert origin_of(origin["test"], 0) == ("test-a", 20)
    assert origin_of(origin["test"], 49) == ("test-a", 69)


def test_rows_of_another_file_are_another_run_even_if_their_numbers_go_on(tmp_path: Path) -> None:
    columns = toy.pictures()

    def read(raw: Path) -> Iterator[Block]:
        for file, start in (("a", 0), ("b", 100)):  # a reader may count from the first row that isn't a header
            yield Block({name: c[start : start + 100] for name, c in columns.items()}, file, start)

    records, _ = convert(tmp_path, read=read)
    origin = read_json(Store(tmp_path).path(records) / ORIGIN)
    assert origin == {"train": [["a", 0, 100], ["b", 100, 50]], "test": [["b", 150, 50]]}


@pytest.mark.parametrize("outside", [250, -1])
def test_there_is_no_origin_outside_of_a_split(outside: int) -> None:
    with pytest.raises(IndexError):
        origin_of([["a", 0, 100], ["b", 0, 150]], outside)


# ------------------------------------------------------------------------------------------------------ the same bytes


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_bytes_do_not_depend_on_the_blocks_of_the_reader(tmp_path: Path, rows: int) -> None:
    columns = numbered(700)
    splits = {"train": Rows(0, 600), "test": Rows(600, 700)}
    made = {
        n: convert(tmp_path / str(n), read=toy.reader_of(columns, n), splits=splits) for n in (64, rows)
    }  # fmt: skip
    (whole, request), (cut, other) = made[64], made[rows]
    assert content(request, whole) == content(other, cut)
    assert whole.digest == cut.digest


def test_what_decides_the_bytes_is_in_the_key_and_nothing_else(tmp_path: Path) -> None:
    made = toy.dataset()
    images, labels = made.features["image"], made.features["label"]

    def parts(**changes: Any) -> Any:
        return toy.key_parts(stage.convert, toy.request_for(tmp_path, replace(made, **changes)))

    assert parts(features={"image": images, "label": replace(labels, classes=("a", "b", "c"))}) == parts()
    assert parts(features={"image": replace(images, high=9), "label": labels}) == parts()
    assert parts(features={"image": images, "label": replace(labels, dtype="int64")}) != parts()
    assert parts(features={"image": replace(images, shape=(8, 9, 1)), "label": labels}) != parts()
    assert parts(splits={"train": Rows(0, 149), "test": Rows(150, 200)}) != parts()
    assert parts(read=toy.read_in_blocks(65)) != parts()
    shares = {"train": 0.5, "test": 0.5}
    dealt = [parts(splits=ByHash("label", one)) for one in (shares, dict(reversed(shares.items())))]
    assert dealt[0] != dealt[1]
    bounds = {"features": {"image": replace(images, high=9), "label": labels}}
    aside = Validation("quarantine")
    assert parts(validation=aside, **bounds) != parts(validation=aside) != parts()
    assert parts(validation=replace(aside, leaks="warn")) == parts(validation=aside)


# -------------------------------------------------------------------------------------------------------- wrong columns


@pytest.mark.parametrize(
    "change",
    [{"label": np.zeros(200, np.float32)}, {"image": np.zeros((200, 9, 8), np.uint8)}, {"extra": np.zeros(200)},
     {"label": np.zeros(199, np.int32)}],
    ids=["dtype", "shape", "another column", "length"],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_with_their_place(tmp_path: Path, change: Columns) -> None:
    good, bad = toy.pictures(), {**toy.pictures(), **change}

    def read(raw: Path) -> Iterator[Block]:
        yield Block({name: c[:100] for name, c in good.items()}, "good", 0)
        labels = len(bad["label"]) - 100
        yield Block({name: c[: labels if name == "label" else 100] for name, c in bad.items()}, "bad", 7)

    with pytest.raises(SchemaError) as caught:
        convert(tmp_path, read=read, splits={"train": Rows(0, 120), "test": Rows(120, 200)})
    assert (caught.value.facts["file"], caught.value.facts["row"]) == ("bad", 7)
    assert not list(tmp_path.glob("records/*/*"))


def test_an_error_of_the_reader_leaves_nothing(tmp_path: Path) -> None:
    def read(raw: Path) -> Iterator[Block]:
        yield from toy.reader_of(toy.pictures())(raw)
        raise GristmillError("the reader broke")

    with pytest.raises(GristmillError, match="broke"):
        convert(tmp_path, read=read)
    assert not list(tmp_path.glob("records/*/*"))
    assert not list((tmp_path / "tmp").iterdir())


# ---------------------------------------------------------------------------------------------------------- kill -9


KILLED = """
import time
from pathlib import Path
import toy
from datasets.schema import Rows

columns, here = toy.pictures(700), Path({store!r})

def read(raw):
    for number, block in enumerate(toy.reader_of(columns)(raw)):
        if number == 9:  # one shard of `train` has records on the disk, `test` is begun
            (here / "half-way").touch()
            time.sleep(600)
        yield block

made = toy.dataset(read=read, splits=dict(train=Rows(0, 560), test=Rows(560, 700)))
toy.records_of(toy.request_for(here, made))
"""


def test_killed_half_way_it_leaves_nothing_and_the_next_run_is_byte_equal(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    process = toy.python(KILLED.format(store=str(store)))
    try:
        deadline = time.monotonic() + 60
        while not (store / "half-way").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    drafts = [path for path in (store / "tmp").iterdir() if path.is_dir()]
    assert [path.name.split("-")[0] for path in drafts] == ["records"]
    assert any(drafts[0].iterdir())
    assert not (store / "records").exists()

    changes: Any = {
        "read": toy.reader_of(toy.pictures(700)), "splits": {"train": Rows(0, 560), "test": Rows(560, 700)},
    }  # fmt: skip
    records, request = convert(store, **changes)
    undisturbed, other = convert(tmp_path / "other", **changes)
    assert content(request, records) == content(other, undisturbed)
    assert records.digest == undisturbed.digest
    assert not list((store / "tmp").iterdir())


def test_records_of_another_feature_order_hold_the_same_values(tmp_path: Path) -> None:
    columns = numbered(200)
    features = {"label": Feature("int32", classes=toy.CLASSES), "image": Feature("uint8", (9, 8, 1))}
    records, request = convert(tmp_path, read=toy.reader_of(columns), features=features)
    got = rows_of(request, records, "train")
    assert numbers(got) == list(range(150))
    np.testing.assert_array_equal(got["label"], columns["label"][:150])


def test_a_raw_artifact_of_the_source_is_read(tmp_path: Path) -> None:
    source = toy.write_raw(tmp_path / "raw", toy.pictures())
    request = toy.request_for(tmp_path / "store", toy.dataset(source), tmp_path / "raw")
    records = toy.records_of(request)
    np.testing.assert_array_equal(rows_of(request, records, "test")["image"], toy.pictures()["image"][150:])
