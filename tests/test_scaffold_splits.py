"""Splits that the data asks for, as they stand in the written file and as they deal the rows out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.schema import Dataset
from datasets.splits import ByFraction, ByHash, ByTime, rows_of
from tasks.scaffold_look import look
from tasks.scaffold_text import render

ROWS = 400
START = datetime(2026, 1, 1, 7, tzinfo=UTC)


def rows(**columns: list[Any]) -> dict[str, list[Any]]:
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, ROWS)
    return {**columns, "weight": (4 + 9 * kind + random.normal(size=ROWS)).tolist(), "label": kind.tolist()}


def csv(folder: Path, columns: dict[str, list[Any]]) -> Path:
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / "a.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    return folder / "a.csv"


def written(path: Path) -> tuple[str, Dataset]:
    sketch = look(path, None)
    text = render("mine", sketch, "x")
    made: dict[str, Any] = {}
    exec(compile(text, "datasets/mine.py", "exec"), made)
    return text, made["DATASET"]


def dealt(dataset: Dataset, folder: Path) -> dict[str, np.ndarray]:
    (block,) = dataset.read(folder)
    found = rows_of(dataset.splits, block.columns, block.file, 0, ROWS, None)
    assert sorted(np.concatenate(list(found.values())).tolist()) == list(range(ROWS))
    return found


DAYS = [START + timedelta(hours=9 * i) for i in range(ROWS)]
TIMES = {
    "text": ("created", [day.strftime("%Y-%m-%d %H:%M:%S") for day in DAYS]),
    "zone": ("created", [day.isoformat() for day in DAYS]),
    "date": ("day", [day.date().isoformat() for day in DAYS]),
    "epoch": ("timestamp", [int(day.timestamp()) for day in DAYS]),
}


@pytest.mark.parametrize("kind", [*TIMES, "parquet"])
def test_a_column_of_times_splits_by_time(tmp_path: Path, kind: str) -> None:
    name, values = TIMES.get(kind, ("created", DAYS))
    if kind == "parquet":
        pq.write_table(pa.table(rows(created=DAYS)), tmp_path / "a.parquet")
        path = tmp_path / "a.parquet"
    else:
        path = csv(tmp_path, rows(**{name: values}))
    text, dataset = written(path)
    assert isinstance(dataset.splits, ByTime)
    cut = dataset.splits.parts["test"][0]
    assert cut is not None
    assert cut % 86_400 == 0
    assert "# The future is predicted from the past: tested on 2026-0" in text
    assert f"{name} (it decides the split" in text
    found = dealt(dataset, tmp_path)
    assert found["train"].max() < found["test"].min()
    assert 0.15 < len(found["test"]) / ROWS < 0.3
    assert dataset.inputs != name
    assert name not in str(dataset.transforms)


@pytest.mark.parametrize("key", ["number", "text"])
def test_a_column_of_entities_splits_by_hash(tmp_path: Path, key: str) -> None:
    users = [i * 7 % 90 + 1000 if key == "number" else f"ü{i * 7 % 90}" for i in range(ROWS)]
    text, dataset = written(csv(tmp_path, rows(user_id=users)))
    assert isinstance(dataset.splits, ByHash)
    assert "# All rows of one user_id are in one split (90 of them)" in text
    found = dealt(dataset, tmp_path)
    assert not {users[i] for i in found["train"]} & {users[i] for i in found["test"]}


def test_many_entities_are_counted_to_the_end(tmp_path: Path) -> None:
    count = 1200
    columns = {"customer": [i // 3 for i in range(3 * count)], "x": [i % 11 for i in range(3 * count)],
               "label": [i % 2 for i in range(3 * count)]}  # fmt: skip
    assert isinstance(written(csv(tmp_path, columns))[1].splits, ByHash)


LATE = [0] * 350 + [1] * 50
NO_SPLIT = {
    "": rows(user_id=list(range(ROWS)), time=list(range(ROWS))),
    "user_id says whose row it is, but there are only 5": rows(user_id=[i % 5 for i in range(ROWS)]),
    "user_id says whose row it is, but 1 of 400 rows have none": rows(user_id=["", *(i % 90 for i in range(1, ROWS))]),
    "is written in several ways": rows(user_id=[2**40 + i % 90 for i in range(ROWS - 1)] + [f"{2**40}.0"]),
    "day is a time, but there are only 2": rows(day=["2026-01-01", "2026-01-02"] * (ROWS // 2)),
    "several times (created, seen), and which": rows(created=TIMES["text"][1], seen=TIMES["text"][1]),
    "but the train split would have no '1'": {**rows(created=TIMES["text"][1]), "label": LATE},
    "day is a time, but column 'day': 1 not a time": rows(day=[*TIMES["date"][1][:-1], "2026-02-31"]),
    "looks like a time, but its seconds have fractions": rows(ts=[day.timestamp() + 0.5 for day in DAYS]),
    "are they milliseconds": rows(ts=[int(day.timestamp() * 1000) for day in DAYS]),
}


@pytest.mark.parametrize("why", NO_SPLIT)
def test_what_is_not_obvious_is_dealt_out_at_random_and_the_file_says_so(tmp_path: Path, why: str) -> None:
    text, dataset = written(csv(tmp_path, NO_SPLIT[why]))
    assert isinstance(dataset.splits, ByFraction)
    said = text.partition("DATASET")[2]
    assert ("    # At random, although " in said) == bool(why)
    assert why in " ".join(said.replace("\n    # ", " ").split())


def test_ids_beyond_int32_split_by_hash(tmp_path: Path) -> None:
    ids = [2**40 + 2**32 * (i % 90) for i in range(ROWS)]
    pq.write_table(pa.table(rows(account=ids)), tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", csv(tmp_path, rows(account=ids))):
        _, dataset = written(path)
        assert isinstance(dataset.splits, ByHash)
        found = dealt(dataset, tmp_path)
        assert not {ids[i] for i in found["train"]} & {ids[i] for i in found["test"]}
        assert len({ids[i] for i in found["test"]}) > 9


def test_ids_that_rarely_repeat_are_kept_together(tmp_path: Path) -> None:
    users = [i if i % 10 else i // 20 for i in range(ROWS)]
    assert isinstance(written(csv(tmp_path, rows(user_id=users)))[1].splits, ByHash)


def test_what_came_later_and_births_are_no_time_of_a_row(tmp_path: Path) -> None:
    both = rows(birth_date=TIMES["date"][1], updated_at=TIMES["text"][1][::-1], created=TIMES["text"][1])
    text, dataset = written(csv(tmp_path, both))
    assert isinstance(dataset.splits, ByTime)
    assert "created (it decides the split" in text
    assert "updated_at is a time, too, but of what came later" in text.replace("\n    # ", " ")
    born, dataset = written(csv(tmp_path, rows(birth_date=TIMES["date"][1])))
    assert isinstance(dataset.splits, ByFraction)
    assert "it says when someone was born" in born.replace("\n    # ", " ")


def test_people_go_before_other_entities_and_the_fewest_first(tmp_path: Path) -> None:
    ids = {"store_id": [i % 30 for i in range(ROWS)], "session": [i % 150 for i in range(ROWS)],
           "customer": [i % 75 for i in range(ROWS)]}  # fmt: skip
    text, dataset = written(csv(tmp_path, rows(**ids)))
    assert isinstance(dataset.splits, ByHash)
    assert "# All rows of one customer are" in text
    assert "the rows of one session may be in both" in text.replace("\n    # ", " ")


def test_files_with_and_without_zones_have_no_time(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name, kind in (("a", "text"), ("b", "zone")):
        csv(tmp_path, rows(created=TIMES[kind][1])).rename(tmp_path / "t" / f"{name}.csv")
    text, dataset = written(tmp_path / "t")
    assert isinstance(dataset.splits, ByFraction)
    assert "times with a zone here and without a zone in another file" in text.replace("\n    # ", " ")


def test_time_goes_before_entities(tmp_path: Path) -> None:
    both = rows(user_id=[i % 90 for i in range(ROWS)], created=TIMES["text"][1])
    _, dataset = written(csv(tmp_path, both))
    assert isinstance(dataset.splits, ByTime)
    assert "user_id" not in dataset.features


def test_files_that_are_named_after_splits_go_before_both(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for split in ("train", "test"):
        csv(tmp_path, rows(user_id=[i % 90 for i in range(ROWS)])).rename(tmp_path / "t" / f"{split}.csv")
    assert set(written(tmp_path / "t")[1].splits) == {"train", "test"}  # type: ignore[arg-type]
