"""Faults: counted over all rows, a few shown with their row, and bad rows handed over where they are set aside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from table_cases import FLOAT, WHOLE, csv, fails

from datasets.errors import SchemaError
from datasets.readers import delimited
from datasets.readers.faults import EXAMPLES, Faults, Place, set_aside, setting_aside


def raised(faults: Faults) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        faults.raise_if_any()
    return caught.value


def test_no_fault_is_no_error() -> None:
    faults = Faults("t.csv")
    faults.add("x", "null", [], [], "a number")
    Place(faults, "x", 0).fault("null", np.zeros(3, bool), [1, 2, 3], "a number")
    assert not faults
    faults.raise_if_any()


def test_all_rows_are_counted_and_the_first_few_shown() -> None:
    faults = Faults("t.csv")
    for start in (100, 200):
        faults.add("x", "null", range(start, start + 50), ["null"] * EXAMPLES, "a number")
    error = raised(faults)
    assert error.what == "column 'x': 100 null"
    assert error.facts == {
        "file": "t.csv", "field": "x", "row": "100 (data rows are counted from 0)",
        "got": "null at row 100, null at row 101, null at row 102", "expected": "a number",
    }  # fmt: skip


def test_faults_of_a_column_are_shown_by_row_and_other_columns_named() -> None:
    faults = Faults("t.csv")
    faults.add("x", "inf", [7], ["inf"], "a number")
    faults.add("y", "null", [0], ["null"], "a date")
    faults.add("x", "nan", [3, 9], ["nan", "nan"], "another")
    error = raised(faults)
    assert error.what == "column 'x': 1 inf, 2 nan"
    assert error.facts["row"].startswith("3 ")
    assert error.facts["got"] == "nan at row 3, inf at row 7, nan at row 9"
    assert error.facts["expected"] == "a number"
    assert error.facts["also_wrong"] == "'y'"


@pytest.mark.parametrize("keeps", [True, False])
def test_only_who_keeps_rows_has_them_each_with_its_first_fault(keeps: bool) -> None:
    faults = Faults("t.csv", keeps_rows=keeps)
    faults.add("x", "null", np.array([4, 5]), ["null", "null"], "a number")
    faults.add("y", "too long", [5, 6, 7, 8], ["a", "b", "c"], "2 bytes")
    null = ("x", "null", "a number", "null")
    long = {row: ("y", value, "2 bytes", "too long") for row, value in ((6, "b"), (7, "c"), (8, ""))}
    assert faults.rows == ({4: null, 5: null, **long} if keeps else {})


@pytest.mark.parametrize("values", [["a", None, 2.5, "d"], pa.array(["a", None, "2.5", "d"])])
def test_a_place_knows_the_row_of_each_value(values: list[object] | pa.Array) -> None:
    faults = Faults("t.csv")
    Place(faults, "x", 10).fault("wrong", np.array([True, True, False, True]), values, "a number")
    assert raised(faults).facts["got"] == "'a' at row 10, null at row 11, 'd' at row 13"


def test_values_of_lists_count_rows_and_not_values() -> None:
    faults = Faults("t.parquet")
    Place(faults, "vec", 100, per=4).fault("null", np.arange(12) == 9, np.arange(12), "a number")
    assert raised(faults).facts["got"] == "9 at row 102"


def test_a_place_shows_every_value_to_who_keeps_rows() -> None:
    faults = Faults("t.csv", keeps_rows=True)
    Place(faults, "x", 0).fault("odd", np.ones(EXAMPLES + 2, bool), np.arange(EXAMPLES + 2), "even")
    assert [faults.rows[row][1] for row in range(EXAMPLES + 2)] == list(range(EXAMPLES + 2))


def test_rows_are_set_aside_within_and_not_after() -> None:
    def outer(*fault: object) -> None: ...

    def inner(*fault: object) -> None: ...

    def stopped() -> None:
        with setting_aside(inner):
            assert set_aside() is inner
            raise KeyError

    assert set_aside() is None
    with setting_aside(outer):
        with pytest.raises(KeyError):
            stopped()
        assert set_aside() is outer
    assert set_aside() is None


def test_a_reader_leaves_out_what_is_set_aside(tmp_path: Path) -> None:
    data, features = "n,x\n1,1\nz,2\n3,\n4,4\n", {"n": WHOLE, "x": FLOAT}
    taken: list[tuple[object, ...]] = []
    with setting_aside(lambda *fault: taken.append(fault)):
        got = csv(tmp_path, data, features)
        places = [(block.row, len(block.columns["n"])) for block in delimited.blocks(tmp_path, "t.csv", features)]
    assert got["n"].tolist() == [1, 4]
    assert places == [(0, 1), (3, 1)]
    assert [(file, row, column, reason) for file, row, column, _, _, reason in taken[:2]] == [
        ("t.csv", 1, "n", "not a whole number"), ("t.csv", 2, "x", "null"),
    ]  # fmt: skip
    fails(SchemaError, lambda: csv(tmp_path, data, features), "column 'n': 1 not a whole number", "also_wrong: 'x'")
