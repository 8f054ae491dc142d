from __future__ import annotations

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.readers.faults import Faults, Place, set_aside, setting_aside


def test_a_message_counts_places_and_shows_a_few() -> None:
    faults = Faults("a.csv")
    assert not faults
    place = Place(faults, "x", row=10)
    place.fault("not a number", np.array([False, True, True, True, True]), ["0", "a", "b", "c", "d"], "a number")
    Place(faults, "y", row=10).fault("null", np.array([True]), [None], "a value")
    assert faults
    assert faults.rows == {}
    with pytest.raises(SchemaError, match="column 'x': 4 not a number") as caught:
        faults.raise_if_any()
    facts = caught.value.facts
    assert facts["got"] == "'a' at row 11, 'b' at row 12, 'c' at row 13"
    assert (facts["file"], facts["expected"], facts["also_wrong"]) == ("a.csv", "a number", "'y'")


def test_every_faulty_row_is_kept_where_asked_with_its_first_fault() -> None:
    faults = Faults("a.csv", keeps_rows=True)
    Place(faults, "x", row=0).fault("bad", np.array([True] * 5 + [False]), list("abcdef"), "good")
    Place(faults, "y", row=0).fault("null", np.array([False] * 4 + [True, True]), [None] * 6, "a value")
    assert list(faults.rows) == [0, 1, 2, 3, 4, 5]
    assert faults.rows[4] == ("x", "'e'", "good", "bad")
    assert faults.rows[5] == ("y", "null", "a value", "null")


def test_values_inside_of_lists_are_faults_of_their_row() -> None:
    faults = Faults("a.parquet", keeps_rows=True)
    Place(faults, "v", row=3, per=2).fault("nan", np.array([False, False, False, True]), [0, 1, 2, 3], "finite")
    assert list(faults.rows) == [4]


def test_who_takes_bad_rows_ends_with_the_block() -> None:
    assert set_aside() is None
    with setting_aside(print):
        assert set_aside() is print
    assert set_aside() is None
    with pytest.raises(ZeroDivisionError), setting_aside(print):
        _ = 1 // 0
    assert set_aside() is None
