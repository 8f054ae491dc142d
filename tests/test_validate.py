from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest
import toy

from datasets.errors import ArtifactDamaged, SchemaError, SplitError
from datasets.schema import Columns, Feature, Rows, Validation
from tasks import validate as stage
from tasks.artifact import Artifact, Draft, Store
from tasks.drift import baseline
from tasks.durable import read_json
from tasks.registry import Registry
from tasks.request import Request
from tasks.split_summary import SplitSummary
from tasks.stage import Job
from tasks.validate import PAGE, REPORT, validate_records

TEN = tuple("0123456789")
FEATURES = {
    "x": Feature("float32", (3,), low=-2.0, high=2.0),
    "free": Feature("float64"),
    "count": Feature("uint8", high=200),
    "y": Feature("int32", classes=TEN),
}


def table(rows: int = 60) -> Columns:
    random = np.random.default_rng(1)
    return {
        "x": random.uniform(-2, 2, (rows, 3)).astype(np.float32),
        "free": random.normal(1e6, 1.0, rows),
        "count": random.integers(0, 201, rows).astype(np.uint8),
        "y": (np.arange(rows) % 10).astype(np.int32),
    }


def summary(columns: Columns, block: int = 25) -> dict[str, Any]:
    made = SplitSummary("train", FEATURES, [["raw.csv", 5, 10_000]])
    rows = len(columns["y"])
    for start in range(0, rows, block):
        made.add({name: column[start : start + block] for name, column in columns.items()})
    return made.to_json()


def with_value(name: str, at: Any, value: Any) -> Columns:
    columns = table()
    columns[name][at] = value
    return columns


# ------------------------------------------------------------------------------------------------------------- layout

LAYOUTS: dict[str, Any] = {
    "dtype": {"y": table()["y"].astype(np.int64)},
    "float dtype": {"x": table()["x"].astype(np.float64)},
    "shape": {"x": table()["x"][:, :2]},
    "rank": {"y": table()["y"][:, None]},
    "length": {"free": table()["free"][:-1]},
}


@pytest.fixture(params=[False, True], ids=["chex", "chex disabled"])
def disabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    if request.param:
        chex.disable_asserts()
    yield request.param
    chex.enable_asserts()


@pytest.mark.parametrize("case", LAYOUTS)
def test_a_column_of_another_layout_is_refused(case: str, disabled: bool) -> None:
    columns = {**table(), **LAYOUTS[case]}
    made = SplitSummary("train", FEATURES, [["raw.csv", 0, 60]])
    with pytest.raises(SchemaError, match="layout") as caught:
        made.add(columns)
    (name,) = LAYOUTS[case]
    facts = caught.value.facts
    assert (facts["split"], facts["field"]) == ("train", name)
    assert facts["got"] == f"{columns[name].dtype}{list(columns[name].shape)}"
    assert facts["expected"] == f"{FEATURES[name].dtype}{[60, *FEATURES[name].shape]}"
    assert made.rows == 0


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_other_columns_are_refused(change: str) -> None:
    columns = table()
    if change == "missing":
        del columns["free"]
    else:
        columns["more"] = columns["free"]
    with pytest.raises(SchemaError, match="columns differ"):
        summary(columns)


# ------------------------------------------------------------------------------------------------------------- values

VALUES: dict[str, tuple[str, Any, float, int]] = {
    "NaN": ("x", (31, 1), np.nan, 31),
    "infinity": ("x", (0, 0), np.inf, 0),
    "minus infinity": ("x", (59, 2), -np.inf, 59),
    "below": ("x", (24, 0), -2.5, 24),
    "above": ("x", (25, 0), 2.5, 25),
    "NaN without bounds": ("free", 50, np.nan, 50),
    "infinity without bounds": ("free", 49, -np.inf, 49),
    "whole number above": ("count", 7, 201, 7),
    "label above": ("y", 58, 10, 58),
    "label below": ("y", 26, -1, 26),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_bad_value_is_named_with_its_record_and_its_raw_row(case: str, disabled: bool) -> None:
    name, at, value, record = VALUES[case]
    with pytest.raises(SchemaError, match="out of range or not finite") as caught:
        summary(with_value(name, at, value))
    facts = caught.value.facts
    assert {key: facts[key] for key in ("split", "field", "record", "file", "row")} == {
        "split": "train", "field": name, "record": record, "file": "raw.csv", "row": 5 + record,
    }  # fmt: skip
    np.testing.assert_equal(float(facts["got"]), value)
    assert facts["count"].startswith("1 of the ")
    assert caught.value.cure is None


def test_the_bounds_themselves_are_allowed() -> None:
    columns = table()
    columns["x"][3], columns["count"][4] = [-2.0, 0.0, 2.0], 200
    assert summary(columns)["features"]["x"]["max"][2] == 2.0


def test_the_first_of_several_bad_records_is_named_and_all_are_counted() -> None:
    columns = table()
    columns["x"][[11, 7, 13], 1] = np.nan
    with pytest.raises(SchemaError) as caught:
        summary(columns, block=60)
    assert caught.value.facts["record"] == 7
    assert caught.value.facts["count"] == "3 of the 60 rows read together"


def test_labels_from_1_to_n_are_recognised() -> None:
    columns = table()
    columns["y"] += 1
    with pytest.raises(SchemaError) as caught:
        summary(columns)
    assert "subtract 1" in str(caught.value)
    assert caught.value.facts["values"] == "1 to 10"
    assert caught.value.facts["expected"] == "finite values, 0 to 9"
    assert caught.value.facts["record"] == 9


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32", "uint64", "bool"])
def test_a_label_may_have_any_dtype_of_whole_numbers(dtype: str) -> None:
    features = {"y": Feature(dtype, classes=("no", "yes"))}
    made = SplitSummary("train", features, [["raw", 0, 5]])
    made.add({"y": np.array([0, 1, 1, 0, 1], dtype)})
    assert made.to_json()["classes"] == {"y": {"no": 2, "yes": 3}}


OPTIMISED = """
import test_validate as t
from datasets.errors import SchemaError

assert False, "python -O must skip this"
refused = 0
for columns in [{**t.table(), **change} for change in t.LAYOUTS.values()] + [
    t.with_value(name, at, value) for name, at, value, _ in t.VALUES.values()
]:
    try:
        t.summary(columns, block=60)
    except SchemaError:
        refused += 1
t.summary(t.table())
print(refused)
"""


def test_python_without_assertions_refuses_the_same() -> None:
    done = toy.run_python(OPTIMISED, "-O")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(LAYOUTS) + len(VALUES)


# ----------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("block", [1, 7, 60])
def test_statistics_are_those_of_numpy(block: int) -> None:
    columns = table()
    report = summary(columns, block)
    assert report["examples"] == 60
    for name, column in columns.items():
        wide, got = column.astype(np.float64).reshape(60, -1), report["features"][name]
        assert got["count"] == wide.size
        np.testing.assert_array_equal([got["min"], got["max"]], np.squeeze([wide.min(0), wide.max(0)]))
        np.testing.assert_allclose([got["mean"], got["std"]], np.squeeze([wide.mean(0), wide.std(0)]), rtol=1e-9)
    assert report["classes"] == {"y": dict.fromkeys(TEN, 6)}


# ----------------------------------------------------------------------------------------------------- the whole stage


def numbers(rows: int, labels: np.ndarray) -> Columns:
    return {"image": np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2), "label": labels.astype(np.int32)}


def prepared(store: Path, columns: Columns, **changes: Any) -> tuple[Request, Artifact]:
    features = {"image": Feature("float32", (2,)), "label": Feature("int32", classes=TEN)}
    rows = len(columns["label"])
    splits = {"train": Rows(100, rows), "test": Rows(0, 100)}
    options: dict[str, Any] = {"features": features, "splits": splits, "read": toy.reader_of(columns, 1000), **changes}
    key = options.pop("key", None)
    request = toy.request_for(store, toy.dataset(**options))
    return request, toy.records_of(request, key)


def validate(request: Request, records: Artifact) -> Artifact:
    return validate_records(toy.job(request, "validate"), records=records)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, Artifact]:
    return prepared(tmp_path_factory.mktemp("store"), numbers(400, np.arange(400) % 10))


def test_the_report_vouches_for_the_records(sound: tuple[Request, Artifact]) -> None:
    request, records = sound
    report = validate(request, records)
    store = Store(request.store)
    assert store.facts(report) == {
        "records": records.digest, "examples": {"train": 300, "test": 100}, "classes": list(TEN), "quarantined": 0,
        "duplicates": {"within": {"train": 0, "test": 0}, "across": {"train/test": 0}, "conflicting": 0}, "warnings": 0,
    }  # fmt: skip
    content = read_json(store.path(report) / REPORT)
    assert content["splits"]["train"]["classes"] == {"label": dict.fromkeys(TEN, 30)}
    label = content["splits"]["test"]["features"]["label"]
    assert {name: label[name] for name in ("count", "missing", "min", "max", "mean", "std")} == {
        "count": 100, "missing": 0, "min": 0.0, "max": 9.0, "mean": 4.5, "std": pytest.approx(np.std(np.arange(10))),
    }  # fmt: skip
    assert content["conversion"] == {"raw_rows": 400, "left_out": 0, "quarantined": 0, "reasons": {}}
    assert content["drift"] == {"against": None, "features": {}}
    page = (store.path(report) / PAGE).read_text()
    assert page.startswith("# Data of toy\n")
    assert "| 3 | 3 | 30 (10.0%) | 10 (10.0%) |" in page


def test_one_wrong_label_is_found_at_its_record(tmp_path: Path) -> None:
    labels = np.arange(6000) % 10
    labels[100 + 4711] = 10
    request, records = prepared(tmp_path, numbers(6000, labels))
    with pytest.raises(SchemaError) as caught:
        validate(request, records)
    facts = caught.value.facts
    assert {key: facts[key] for key in ("split", "field", "record", "file", "row")} == {
        "split": "train", "field": "label", "record": 4711, "file": "raw", "row": 4811,
    }  # fmt: skip
    assert facts["got"] == 10
    assert not list(tmp_path.glob("report/*/*"))


def test_all_labels_from_1_to_10_are_refused_with_the_cure(tmp_path: Path) -> None:
    request, records = prepared(tmp_path, numbers(400, np.arange(400) % 10 + 1))
    with pytest.raises(SchemaError, match="labels seem to start at 1") as caught:
        validate(request, records)
    assert (caught.value.facts["split"], caught.value.facts["record"]) == ("train", 9)


def test_a_class_without_train_examples_is_named(tmp_path: Path) -> None:
    labels = np.arange(400) % 10
    labels[100:][np.isin(labels[100:], [3, 7])] = 0
    request, records = prepared(tmp_path, numbers(400, labels))
    with pytest.raises(SplitError) as caught:
        validate(request, records)
    assert caught.value.facts["classes"] == "3, 7"
    assert caught.value.facts["elsewhere"] == "3, 7 in test only"
    assert caught.value.facts["split"] == "train"


def test_a_class_without_test_examples_is_allowed_and_reported(tmp_path: Path) -> None:
    labels = np.arange(400) % 10
    labels[:100][labels[:100] == 3] = 0
    request, records = prepared(tmp_path, numbers(400, labels))
    report = Store(tmp_path).path(validate(request, records))
    content = read_json(report / REPORT)
    assert content["splits"]["test"]["classes"]["label"]["3"] == 0
    [finding] = content["findings"]
    assert (finding["severity"], finding["kind"]) == ("warn", "missing_classes")
    assert finding["what"] == "split 'test' has no example of 3"
    assert (finding["got"], finding["in_train"]) == ("0 of 100 records", "3: 30")
    assert "**warn** split 'test' has no example of 3" in (report / PAGE).read_text()


def test_a_damaged_shard_is_not_vouched_for(tmp_path: Path) -> None:
    request, records = prepared(tmp_path, numbers(400, np.arange(400) % 10))
    (shard,) = Store(tmp_path).path(records).glob("train*")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2 - 200] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ArtifactDamaged):
        validate(request, records)
    assert not list(tmp_path.glob("report/*/*"))


def repeated() -> Columns:
    """400 rows of which 10 test rows are train rows too, one with another label, and one repeats within train."""
    columns = numbers(400, np.arange(400) % 10)
    for column in columns.values():
        column[:10] = column[200:210]
        column[399] = column[389]
    columns["label"][4] += 1
    return columns


def test_the_same_inputs_in_train_and_test_end_the_run_and_are_named(tmp_path: Path) -> None:
    request, records = prepared(tmp_path, repeated())
    with pytest.raises(SplitError) as caught:
        validate(request, records)
    assert caught.value.what == "10 records of 'test' are duplicates across train/test (by decoded content)"
    facts = caught.value.facts
    assert (facts["count"], facts["conflicting_labels"]) == (10, 1)
    assert facts["first"] == "train record 104 (raw row 204) = test record 4 (raw row 4)"
    assert not list(tmp_path.glob("report/*/*"))


def test_leaks_that_the_dataset_file_allows_are_said_and_counted(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    request, records = prepared(tmp_path, repeated(), validation=Validation(leaks="warn"))
    report = validate(request, records)
    facts = Store(tmp_path).facts(report)
    assert facts["duplicates"] == {"within": {"train": 1, "test": 0}, "across": {"train/test": 10}, "conflicting": 1}
    assert facts["warnings"] == 3
    assert "10 records of 'test' are duplicates across train/test" in said.text
    page = (Store(tmp_path).path(report) / PAGE).read_text()
    assert "| train 104 (raw row 204) | test 4 (raw row 4) | differ |" in page


@pytest.mark.parametrize(
    ("policy", "message"),
    [({"conflicts": "error"}, "1 inputs occur with different labels"),
     ({"repeats": "error"}, "1 records of 'train' repeat an earlier one")],
)  # fmt: skip
def test_conflicts_and_repeats_end_the_run_where_asked(tmp_path: Path, policy: Any, message: str) -> None:
    request, records = prepared(tmp_path, repeated(), validation=Validation(leaks="warn", **policy))
    with pytest.raises(SchemaError, match=message):
        validate(request, records)


# ---------------------------------------------------------------------------------------------------------------- drift


def promoted(request: Request, records: Artifact, name: str) -> None:
    """Registers a model that was trained on these records as the champion."""
    weights = Job("fit", name, {"inputs": {"records": records.digest}}, request, Store(request.store))

    def fill(draft: Draft) -> None:
        (draft.folder / "w").write_text(name)

    made = weights.commit("weights", fill)
    registry = Registry(Store(request.store), "toy")
    registry.crown(registry.add(made, {}))


def shifted(store: Path, key: str, shift: float, **policy: Any) -> tuple[Request, Artifact]:
    columns = numbers(400, np.arange(400) % 10)
    columns["image"] += np.float32(shift)
    return prepared(store, columns, validation=Validation(**policy), key=key)


def test_drift_against_the_data_of_the_last_promoted_run(tmp_path: Path) -> None:
    request, records = shifted(tmp_path, "one", 0)
    first = validate(request, records)
    assert toy.key_parts(stage.validate, request)["against"] is None
    promoted(request, records, "w1")

    changed, other = shifted(tmp_path, "two", 500)
    with pytest.raises(SchemaError, match="'image' has drifted") as caught:
        validate(changed, other)
    facts = caught.value.facts
    assert facts["expected"] == "at most 0.25"
    assert float(facts["got"].removeprefix("Jensen-Shannon distance ")) > 0.5
    assert records.digest[:12] in facts["against"]
    assert toy.key_parts(stage.validate, changed)["against"] == first.digest

    near, small = shifted(tmp_path, "three", 30)
    report = validate_records(toy.job(near, "validate", "v3"), records=small)
    content = read_json(Store(tmp_path).path(report) / REPORT)
    assert content["drift"]["against"] == {"report": first.digest, "records": records.digest}
    assert 0 < content["drift"]["features"]["image"]["distance"] < 0.25
    assert content["drift"]["features"]["label"] == {"distance": 0.0, "measure": "L-infinity", "limit": 0.25}

    strict, _ = shifted(tmp_path, "four", 30, drift={"image": 0.001})
    with pytest.raises(SchemaError, match="'image' has drifted"):
        validate_records(toy.job(strict, "validate", "v4"), records=small)
    told, _ = shifted(tmp_path, "five", 30, drift={"image": 0.001}, on_drift="warn")
    facts = Store(tmp_path).facts(validate_records(toy.job(told, "validate", "v5"), records=small))
    assert facts["warnings"] == 1


def test_the_same_data_asks_the_same_question_after_its_model_was_promoted(tmp_path: Path) -> None:
    request, records = shifted(tmp_path, "one", 0)
    first = validate(request, records)
    promoted(request, records, "w1")
    near, other = shifted(tmp_path, "two", 10)
    store = Store(tmp_path)
    assert baseline(store, "toy", records.digest) is None
    assert baseline(store, "toy", other.digest) == first
    second = validate_records(toy.job(near, "validate", "v2"), records=other)
    promoted(near, other, "w2")
    assert baseline(store, "toy", other.digest) == first
    assert baseline(store, "toy", "new") == second


def test_bounds_and_class_names_are_part_of_the_key(sound: tuple[Request, Artifact]) -> None:
    request, _ = sound
    made = request.dataset

    def parts(**features: Feature) -> Any:
        changed = replace(made, features={**made.features, **features})
        return toy.key_parts(stage.validate, replace(request, dataset=changed))

    image, label = made.features["image"], made.features["label"]
    assert parts() == parts(image=image)
    assert parts(image=replace(image, high=1.0)) != parts()
    assert parts(label=replace(label, classes=TEN[::-1])) != parts()
