from __future__ import annotations

import numpy as np
import pytest

from datasets.ragged import Ragged

TEXTS = ["a", "", "héé", "last"]


def test_items_come_back() -> None:
    made = Ragged.of_items(TEXTS, of="string")
    assert [made[i] for i in range(len(made))] == TEXTS
    assert (made[-1], len(made.values), made.lengths.tolist()) == ("last", 10, [1, 0, 5, 4])
    raw = Ragged.of_items([b"\0", b""], of="bytes")
    assert [raw[0], raw[1]] == [b"\0", b""]
    lists = Ragged.of_items([[1.5], [], [2, 3]], "float32")
    assert lists.dtype == np.float32
    assert lists[2].tolist() == [2.0, 3.0]
    with pytest.raises(IndexError):
        made[4]


def test_rows_by_slice_and_by_number() -> None:
    made = Ragged.of_items(TEXTS, of="string")
    for at in (slice(1, 3), slice(0, 0), slice(2, None), slice(None, None, -2), np.array([3, 3, 0]), np.zeros(0, int)):
        part = made[at]
        expected = TEXTS[at] if isinstance(at, slice) else [TEXTS[i] for i in at]
        assert part == Ragged.of_items(expected, of="string")
        assert part.offsets[0] == 0


def test_joining_is_the_reverse_of_cutting() -> None:
    made = Ragged.of_items([[1], [2, 3], [], [4]], "int64")
    assert Ragged.joined([made[:1], made[1:3], made[3:]]) == made
    assert made != Ragged.of_items([[1], [2], [3], [4]], "int64")
    assert made != Ragged.of_items([[1], [2, 3], [], [4]], "int32")


def test_the_row_of_a_value() -> None:
    made = Ragged.of_items([[1], [], [2, 3], [4]], "int64")
    assert made.rows_of(np.array([1, 2, 3])).tolist() == [2, 3]


@pytest.mark.parametrize("offsets", [[1, 3], [0, 2], [0, 2, 1, 3], [], [[0, 3]]])
def test_offsets_that_do_not_lead_through_the_values(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        Ragged(np.zeros(3), np.array(offsets))
