"""Raw files converted one by one: each once, in any number of threads or processes, to the same bytes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
import toy

from datasets.errors import FetchError, SchemaError, SplitError
from datasets.readers import delimited, jsonl, parquet
from datasets.readers.cores import may_use_all
from datasets.schema import Block, ByFraction, ByHash, ByTime, Dataset, Feature, Files, Rows, Source, Validation
from tasks import convert as stage
from tasks import parts
from tasks.artifact import Artifact, Draft, Store
from tasks.columns import MappedColumns, build_columns
from tasks.dealing import ORIGIN, deal, origin_of
from tasks.durable import read_json
from tasks.parts import KIND
from tasks.quarantine import QUARANTINE
from tasks.stage import Job, Run, key_of
from tasks.validate import open_split

FEATURES = {
    "x": Feature("float32", (2,), high=1e6), "user": Feature("int32"), "label": Feature("int32", classes=("no", "yes")),
}  # fmt: skip
READ = functools.partial(parquet.blocks, where="data", features=FEATURES, columns={"x": ("a", "b")}, rows=70)
BY_USER = ByHash("user", {"train": 0.7, "test": 0.3})


def write_file(folder: Path, number: int, rows: int = 100) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(number)
    columns = {
        "a": random.normal(size=rows), "b": np.full(rows, float(number)), "user": random.integers(0, 40, rows),
        "label": np.arange(rows) % 2,
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "data" / f"day-{number:03d}.parquet")


def dataset(**changes: Any) -> Dataset:
    options: dict[str, Any] = {
        "about": "Days", "source": Source(()), "read": READ, "features": FEATURES, "inputs": "x", "label": "label",
        "splits": BY_USER, "by_file": True,
    }  # fmt: skip
    return Dataset(**{**options, **changes})


def convert(store: Path, raw: Path, made: Dataset) -> tuple[Artifact, Job]:
    """The stage's body with the components that it has in a run."""
    request = toy.request_for(store, made)

    def fill(draft: Draft) -> None:
        shutil.copytree(raw, draft.folder, dirs_exist_ok=True)

    artifact = toy.job(request, "fetch").commit("raw", fill)
    components = stage.convert.components(Run(request, sources=toy.SOURCES), {"raw": artifact})
    job = Job("convert", key_of(components), components, request, Store(store))
    return stage.convert_raw(job, raw=artifact), job


def columns_of(store: Path, records: Artifact, split: str) -> dict[str, np.ndarray]:
    place = Store(store)
    shards = open_split(place.path(records), place.facts(records), split, FEATURES)
    return shards.read(np.arange(len(shards)))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    for number in range(5):
        write_file(tmp_path / "raw", number)
    return tmp_path / "raw"


def test_a_night_with_one_new_file_of_50_converts_one(tmp_path: Path) -> None:
    store, raw = tmp_path / "store", tmp_path / "raw"
    for number in range(49):
        write_file(raw, number, rows=20)
    _, first = convert(store, raw, dataset())
    assert len(first.notes["parts"]["converted"]) == 49
    write_file(raw, 49, rows=20)
    records, second = convert(store, raw, dataset())
    assert second.notes["parts"] == {"files": 50, "converted": ["data/day-049.parquet"]}
    fresh, _ = convert(tmp_path / "other", raw, dataset())
    assert records.digest == fresh.digest
    assert Store(store).facts(records)["raw_rows"] == 1000


def test_a_file_that_is_converted_alone_may_use_every_core(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool]] = []

    def dealt(*args: Any, beside: bool) -> Any:
        seen.append((beside, may_use_all()))
        return deal(*args, beside=beside)

    monkeypatch.setattr(parts, "deal", dealt)
    convert(tmp_path / "s", raw, dataset())
    write_file(raw, 5)
    convert(tmp_path / "s", raw, dataset())
    assert seen == [(False, False)] * 5 + [(True, True)]


def test_a_changed_file_is_converted_again_and_a_removed_one_leaves(tmp_path: Path, raw: Path) -> None:
    convert(tmp_path / "s", raw, dataset())
    write_file(raw, 3, rows=110)
    (raw / "data" / "day-001.parquet").unlink()
    records, job = convert(tmp_path / "s", raw, dataset())
    assert job.notes["parts"] == {"files": 4, "converted": ["data/day-003.parquet"]}
    assert set(np.unique(columns_of(tmp_path / "s", records, "train")["x"][:, 1])) == {0, 2, 3, 4}


def test_the_examples_are_those_of_one_pass_in_its_order(tmp_path: Path, raw: Path) -> None:
    parts, _ = convert(tmp_path / "s", raw, dataset())
    whole, _ = convert(tmp_path / "w", raw, dataset(by_file=False))
    places = {}
    for store, records in ((tmp_path / "s", parts), (tmp_path / "w", whole)):
        origin = read_json(Store(store).path(records) / ORIGIN)
        places[store] = origin
        assert sum(len(columns_of(store, records, split)["user"]) for split in ("train", "test")) == 500
    assert places[tmp_path / "s"] == places[tmp_path / "w"]
    for split in ("train", "test"):
        one, other = columns_of(tmp_path / "s", parts, split), columns_of(tmp_path / "w", whole, split)
        for name in FEATURES:
            np.testing.assert_array_equal(one[name], other[name])
        file, row = origin_of(places[tmp_path / "s"][split], 100)
        table = pq.read_table(raw / file)
        assert table.column("a")[row].as_py() == pytest.approx(float(one["x"][100, 0]))
    digests = []
    for store, records in ((tmp_path / "s", parts), (tmp_path / "w", whole)):
        shards = open_split(Store(store).path(records), Store(store).facts(records), "train", FEATURES)
        build_columns(shards, store / "columns")
        digests.append(MappedColumns(store / "columns").digest)  # the order of a training hangs on it
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("pool", "workers"), [("threads", "1"), ("threads", "3"), ("processes", "2")])
def test_the_bytes_do_not_depend_on_the_workers(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, pool: str, workers: str
) -> None:
    expected, _ = convert(tmp_path / "one", raw, dataset(by_file=True))
    monkeypatch.setenv("GRISTMILL_POOL", pool)
    monkeypatch.setenv("GRISTMILL_WORKERS", workers)
    records, _ = convert(tmp_path / "two", raw, dataset())
    assert records.digest == expected.digest
    Store(tmp_path / "two").verify(records)


def test_what_decides_the_rows_of_a_part_makes_it_again_and_nothing_else_does(tmp_path: Path, raw: Path) -> None:
    def converted(made: Dataset) -> int:
        return len(convert(tmp_path / "s", raw, made)[1].notes["parts"]["converted"])

    assert converted(dataset()) == 5
    assert converted(dataset(about="Other days", recipe=replace(dataset().recipe, epochs=1))) == 0
    assert converted(dataset(splits=ByHash("user", {"train": 0.5, "test": 0.5}))) == 5
    assert converted(dataset(read=functools.partial(READ, rows=71))) == 5
    aside = Validation("quarantine", most_bad=0.5)
    assert converted(dataset(validation=aside)) == 5
    assert converted(dataset(validation=replace(aside, most_bad=0.2))) == 0
    narrower = {**FEATURES, "x": replace(FEATURES["x"], low=-9.0)}
    assert converted(dataset(validation=aside, features=narrower)) == 5


def test_a_damaged_part_is_made_again(tmp_path: Path, raw: Path) -> None:
    store = tmp_path / "s"
    records, _ = convert(store, raw, dataset())
    part = sorted((store / KIND / "toy").iterdir())[2]
    shard = next(part.glob("train-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.unlink()
    shard.write_bytes(content)
    again, job = convert(store, raw, dataset())
    assert len(job.notes["parts"]["converted"]) == 1
    assert again.digest == records.digest


def test_files_without_rows_of_a_split_or_of_any_are_parts_too(tmp_path: Path, raw: Path) -> None:
    write_file(raw, 9, rows=0)
    by_time = ByTime("user", {"train": (None, 30), "test": (30, 100)})
    records, job = convert(tmp_path / "s", raw, dataset(splits=by_time))
    assert job.notes["parts"]["files"] == 6
    assert columns_of(tmp_path / "s", records, "test")["user"].min() == 30
    by_name = {"train": Files("data/day-000"), "test": Files("data/day-004")}
    records, _ = convert(tmp_path / "s", raw, dataset(splits=by_name))
    facts = Store(tmp_path / "s").facts(records)
    assert (facts["left_out"], facts["raw_rows"]) == (300, 500)
    with pytest.raises(SplitError, match="'test' is empty"):
        convert(tmp_path / "s", raw, dataset(splits={"train": Files("data/"), "test": Files("data/day-009")}))


def test_an_error_names_its_file_and_leaves_the_sound_parts(tmp_path: Path, raw: Path) -> None:
    content = (raw / "data" / "day-003.parquet").read_bytes()
    (raw / "data" / "day-003.parquet").write_bytes(content[:-1])
    with pytest.raises(Exception, match="footer missing") as caught:
        convert(tmp_path / "s", raw, dataset())
    assert "day-003" in str(caught.value)
    assert not (tmp_path / "s" / "records").exists()
    (raw / "data" / "day-003.parquet").write_bytes(content)
    _, job = convert(tmp_path / "s", raw, dataset())
    assert job.notes["parts"]["converted"][0] == "data/day-003.parquet"
    assert "data/day-000.parquet" not in job.notes["parts"]["converted"]


def of_another_file(raw: Path) -> Iterator[Block]:
    for block in READ(raw):
        yield replace(block, file="other.parquet")


def test_a_reader_that_speaks_of_another_file_is_refused(tmp_path: Path, raw: Path) -> None:
    with pytest.raises(SchemaError, match="another file") as caught:
        convert(tmp_path / "s", raw, dataset(read=of_another_file))
    assert (caught.value.facts["got"], caught.value.facts["expected"]) == ("other.parquet", "data/day-000.parquet")


@pytest.mark.parametrize(
    "splits", [{"train": Rows(0, 100), "test": Rows(100, 200)}, ByFraction({"train": 0.5, "test": 0.5})]
)
def test_splits_that_need_all_rows_can_not_be_made_file_by_file(splits: Any) -> None:
    with pytest.raises(SchemaError, match="can't be converted one by one"):
        dataset(splits=splits)


@pytest.mark.parametrize("by_file", [True, False])
def test_bad_rows_of_all_files_are_set_aside_and_counted(tmp_path: Path, raw: Path, by_file: bool) -> None:
    for number, rows in ((1, [3, 99]), (4, [0])):
        path = raw / "data" / f"day-{number:03d}.parquet"
        table = pq.read_table(path)
        wrong = table.column("b").to_numpy().copy()
        wrong[rows] = 2e6
        pq.write_table(table.set_column(1, "b", pa.array(wrong)), path)
    aside = Validation("quarantine", most_bad=0.01)
    records, _ = convert(tmp_path / "s", raw, dataset(validation=aside, by_file=by_file))
    place = Store(tmp_path / "s")
    facts = place.facts(records)
    assert (facts["quarantined"], facts["reasons"]) == (3, {"x: out of range": 3})
    assert facts["raw_rows"] == 500
    assert sum(split["rows"] for split in facts["splits"].values()) == 497
    assert facts["left_out"] == 0
    lines = (place.path(records) / QUARANTINE).read_text().splitlines()
    assert [(row["file"], row["row"]) for row in map(json.loads, lines)] == [
        ("data/day-001.parquet", 3), ("data/day-001.parquet", 99), ("data/day-004.parquet", 0),
    ]  # fmt: skip
    with pytest.raises(SchemaError, match="more rows are bad than may be set aside") as caught:
        convert(tmp_path / "t", raw, dataset(validation=replace(aside, most_bad=0.005), by_file=by_file))
    assert caught.value.facts["got"] == "3 of 500 rows (0.600%)"
    assert "day-001" in caught.value.facts["first"]


def test_rows_of_a_table_that_its_reader_can_not_take_are_set_aside_too(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    lines = ["x,label,name", "1.5,no,ab", "oops,yes,cd", "2.5,maybe,ef", "3.5,yes,much too long", "4.5,no,gh", ",no,ij"]
    (raw / "a.csv").write_text("\n".join(lines) + "\n")
    features = {"x": Feature("float32"), "label": FEATURES["label"], "name": Feature("uint8", (4,))}
    read = functools.partial(delimited.blocks, where="a.csv", features=features)
    halves: Any = ByFraction({"train": 0.5, "test": 0.5})
    changes: dict[str, Any] = {"read": read, "features": features, "splits": halves, "by_file": False, "inputs": "x"}
    with pytest.raises(SchemaError):
        convert(tmp_path / "s", raw, dataset(**changes))
    made = dataset(**changes, validation=Validation("quarantine", most_bad=0.8))
    records, _ = convert(tmp_path / "s", raw, made)
    place = Store(tmp_path / "s")
    facts = place.facts(records)
    assert (facts["raw_rows"], facts["quarantined"], facts["left_out"]) == (6, 4, 0)
    rows = [json.loads(line) for line in (place.path(records) / QUARANTINE).read_text().splitlines()]
    assert [(row["row"], row["field"], row["reason"]) for row in rows] == [
        (1, "x", "not a number"), (2, "label", "not a class"), (3, "name", "too long"), (5, "x", "null"),
    ]  # fmt: skip
    assert (rows[0]["file"], rows[0]["got"]) == ("a.csv", "'oops'")
    found, origin = {}, read_json(place.path(records) / ORIGIN)
    for split in ("train", "test"):
        part = open_split(place.path(records), facts, split, features).read(np.array([0]))
        found[origin_of(origin[split], 0)[1]] = (float(part["x"][0]), bytes(part["name"][0]))
    assert found == {0: (1.5, b"ab\0\0"), 4: (4.5, b"gh\0\0")}


def test_where_files_have_one_name_only_they_are_copied_and_synced(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, _ = convert(tmp_path / "s", raw, dataset())

    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    synced: list[Path] = []
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(parts, "fsync_file", synced.append)
    copied, _ = convert(tmp_path / "c", raw, dataset())
    assert copied.digest == linked.digest
    assert len(synced) == 2 * 5
    Store(tmp_path / "c").verify(copied)


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from test_parts import convert, dataset
print("ready", flush=True)
convert(Path(sys.argv[1]), Path(sys.argv[2]), dataset())
"""


def test_after_a_kill_in_the_middle_of_50_files_only_the_rest_is_converted(tmp_path: Path) -> None:
    raw, store = tmp_path / "raw", tmp_path / "store"
    for number in range(50):
        write_file(raw, number, rows=20)
    code = KILLED.format(root=str(toy.ROOT), tests=str(toy.ROOT / "tests"))
    command = [sys.executable, "-c", code, str(store), str(raw)]
    environment = {**os.environ, "GRISTMILL_WORKERS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while len(list((store / KIND).glob("*/*/manifest.json"))) < 15:
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
    done = len(list((store / KIND).glob("*/*/manifest.json")))
    assert 15 <= done < 50
    assert not (store / "records").exists()
    records, job = convert(store, raw, dataset())
    assert len(job.notes["parts"]["converted"]) == 50 - done
    assert records.digest == convert(tmp_path / "calm", raw, dataset())[0].digest
    assert [path for path in (store / "tmp").iterdir() if path.is_dir()] == []


MARKERS = ("_SUCCESS", "_metadata", "_common_metadata", ".day-000.crc", "_temporary/day-9", "notes.md")


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_files_that_are_no_data_are_passed_over_as_in_one_pass(tmp_path: Path, kind: str) -> None:
    raw = tmp_path / "raw"
    for number in range(2):
        write_file(raw, number)
        path = raw / "data" / f"day-{number:03d}.parquet"
        table = pq.read_table(path)
        if kind == "csv":
            arrow_csv.write_csv(table, path.with_suffix(".csv"))
        if kind == "jsonl":
            path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        if kind != "parquet":
            path.unlink()
    for name in MARKERS:
        (raw / "data" / name).parent.mkdir(exist_ok=True)
        (raw / "data" / name).write_bytes(b"PAR1 no data")
    (raw / "data" / "_temporary" / f"day-8.{kind}").write_bytes((raw / "data" / f"day-000.{kind}").read_bytes())
    blocks = {"parquet": parquet.blocks, "csv": delimited.blocks, "jsonl": jsonl.blocks}[kind]
    read = functools.partial(blocks, where="data", features=FEATURES, columns={"x": ("a", "b")})
    by_file, job = convert(tmp_path / "store", raw, dataset(read=read))
    whole, one_pass = convert(tmp_path / "whole", raw, dataset(read=read, by_file=False))
    for split in ("train", "test"):
        ours, expected = (columns_of(tmp_path / p, r, split) for p, r in (("store", by_file), ("whole", whole)))
        for name, column in expected.items():
            np.testing.assert_array_equal(ours[name], column)
    assert job.notes["ignored"] == one_pass.notes["ignored"] == {"hidden or marker": 6, ".md": 1}
    assert job.notes["parts"]["converted"] == [f"data/day-00{number}.{kind}" for number in range(2)]
    again, job = convert(tmp_path / "store", raw, dataset(read=read))
    assert again == by_file
    assert job.notes["parts"]["converted"] == []
    assert job.notes["ignored"] == one_pass.notes["ignored"]


def test_a_raw_file_that_is_gone_is_no_marker(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "day-000.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(FetchError):
        list(parts._of_one_file(dataset(), tmp_path, "data/day-000.parquet"))


@pytest.mark.parametrize("by_file", [True, False])
def test_times_with_a_zone_in_one_file_and_without_in_another_are_refused(tmp_path: Path, by_file: bool) -> None:
    def write(number: int, zone: str | None) -> None:
        write_file(tmp_path / "raw", number)
        path = tmp_path / "raw" / "data" / f"day-{number:03d}.parquet"
        at = pa.array(range(100), pa.int64()).cast(pa.timestamp("s", zone))
        pq.write_table(pq.read_table(path).append_column("at", at), path)

    features = {**FEATURES, "at": Feature("int32")}
    read = functools.partial(READ.func, **{**READ.keywords, "features": features})
    made = dataset(features=features, read=read, by_file=by_file)
    for number in range(2):
        write(number, "Europe/Berlin")
    convert(tmp_path / "s", tmp_path / "raw", made)
    write(2, None)
    with pytest.raises(SchemaError, match="'at': times without a zone here and with a zone in another") as caught:
        convert(tmp_path / "s", tmp_path / "raw", made)
    assert caught.value.facts["file"] == "data/day-002.parquet"
    assert "data/day-000.parquet" in caught.value.facts["expected"]
