from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.schema import Block, Feature, Validation
from tasks.quarantine import QUARANTINE, Quarantine, bad_values, check_budget

FEATURES = {
    "x": Feature("float32", (2,), low=-1, high=1), "free": Feature("float64"),
    "y": Feature("int32", classes=("a", "b")),
}  # fmt: skip


def block(rows: int = 6) -> Block:
    columns = {
        "x": np.zeros((rows, 2), np.float32), "free": np.zeros(rows), "y": np.zeros(rows, np.int32),
    }  # fmt: skip
    return Block(columns, "raw.csv", 10)


def test_values_that_are_out_of_range_or_not_finite() -> None:
    column = np.array([[0, 1], [np.nan, -1], [1.1, np.inf], [-np.inf, -1.5]], np.float32)
    expected = [[False, False], [True, False], [True, True], [True, True]]
    np.testing.assert_array_equal(bad_values(column, FEATURES["x"]), expected)
    np.testing.assert_array_equal(bad_values(column[:, 0], FEATURES["free"]), [False, True, False, True])
    np.testing.assert_array_equal(
        bad_values(np.array([-1, 0, 1, 2], np.int32), FEATURES["y"]), [True, False, False, True]
    )
    assert not bad_values(np.array([0, 255], np.uint8), Feature("uint8")).any()


def test_bad_rows_are_named_once_with_their_raw_place(tmp_path: Path) -> None:
    made = block()
    made.columns["x"][1] = [0.5, 3]
    made.columns["y"][[1, 4]] = [7, -2]
    made.columns["free"][5] = np.nan
    with Quarantine(tmp_path) as aside:
        bad = aside.sift(made, FEATURES)
    assert bad.tolist() == [False, True, False, False, True, True]
    rows = [json.loads(line) for line in (tmp_path / QUARANTINE).read_text().splitlines()]
    assert [(row["file"], row["row"], row["field"], row["got"], row["reason"]) for row in rows] == [
        ("raw.csv", 11, "x", 3.0, "out of range"), ("raw.csv", 15, "free", "nan", "not finite"),
        ("raw.csv", 14, "y", -2, "out of range"),
    ]  # fmt: skip
    assert rows[2]["expected"] == "finite, 0 to 1"
    assert (aside.rows, aside.reasons) == (
        3, {"x: out of range": 1, "free: not finite": 1, "y: out of range": 1},
    )  # fmt: skip


def test_without_a_bad_row_there_is_no_file(tmp_path: Path) -> None:
    with Quarantine(tmp_path) as aside:
        assert not aside.sift(block(), FEATURES).any()
    assert not (tmp_path / QUARANTINE).exists()


def test_the_budget_is_a_share_of_all_rows() -> None:
    limits = Validation("quarantine", most_bad=0.01)
    check_budget(limits, 1, 100, {}, None)
    with pytest.raises(SchemaError, match="more rows are bad") as caught:
        check_budget(limits, 2, 100, {"x: not finite": 2}, "first line")
    assert caught.value.facts["got"] == "2 of 100 rows (2.000%)"
    assert caught.value.facts["expected"] == "at most 1.000%"
    assert caught.value.facts["reasons"] == "2 x x: not finite"
    assert caught.value.facts["first"] == "first line"
