from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.schema import Feature
from tasks.record_layout import AT_ONCE, Layout

FEATURES = {"b": Feature("int16"), "a": Feature("uint8", (2, 3)), "c": Feature("float32", (2,))}


def block(rows: int = 5) -> dict[str, np.ndarray]:
    return {
        "a": np.arange(6 * rows, dtype=np.uint8).reshape(rows, 2, 3), "b": np.arange(rows, dtype=np.int16) - 2,
        "c": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) / 3,
    }  # fmt: skip


def test_the_order_of_features_does_not_matter() -> None:
    layout = Layout.of(FEATURES)
    assert layout == Layout.of(dict(reversed(FEATURES.items())))
    assert layout.names == ("a", "b", "c")
    assert layout.row_bytes == 6 + 2 + 8


def test_a_record_is_column_after_column_and_reads_back() -> None:
    layout, rows = Layout.of(FEATURES), block()
    raw = b"".join(layout.encode(rows, 1, 4))
    assert raw == b"".join(rows[name][1:4].tobytes() for name in "abc")
    columns = layout.decode(raw, 3)
    for name, values in columns.items():
        assert values.dtype == rows[name].dtype
        np.testing.assert_array_equal(values, rows[name][1:4])


@pytest.mark.parametrize("count", [1, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE + 1])
def test_records_are_those_of_each_span(count: int) -> None:
    layout, rows = Layout.of(FEATURES), block(3 * count + 4)
    made = list(layout.records(rows, 2, 2 + 3 * count, 3))
    assert made == [b"".join(layout.encode(rows, 2 + 3 * i, 5 + 3 * i)) for i in range(count)]


def test_bytes_are_little_endian_on_every_machine() -> None:
    assert {dtype.str for dtype in Layout.of(FEATURES).dtypes} == {"|u1", "<i2", "<f4"}


def test_a_record_that_is_no_whole_number_of_rows() -> None:
    with pytest.raises(ValueError, match="31 bytes instead of 2 rows of 16"):
        Layout.of(FEATURES).decode(bytes(31), 2)


def test_no_features() -> None:
    with pytest.raises(SchemaError, match="at least one feature"):
        Layout.of({})


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"b": None}, {"missing": "b", "row": 70}),
        ({"d": np.zeros(5)}, {"unknown": "d"}),
        (
            {"a": np.zeros((5, 2, 2), np.uint8)},
            {"field": "a", "got": "uint8 [5, 2, 2]", "expected": "uint8 [rows, 2, 3]"},
        ),
        ({"b": np.zeros(5, np.int32)}, {"field": "b", "got": "int32 [5]"}),
        ({"b": np.zeros(4, np.int16)}, {"field": "b", "got": 4}),
        ({"b": [1, 2, 3, 4, 5]}, {"field": "b", "got": "list []"}),
        ({"b": np.int16(3)}, {"field": "b"}),
    ],
)
def test_a_block_that_does_not_fit(change: dict[str, Any], facts: dict[str, Any]) -> None:
    changed = {name: values for name, values in {**block(), **change}.items() if values is not None}
    with pytest.raises(SchemaError) as caught:
        Layout.of(FEATURES).check(changed, 70)
    assert caught.value.facts | facts == caught.value.facts


def test_a_block_that_fits_says_its_length() -> None:
    assert Layout.of(FEATURES).check(block(5), 0) == 5
    assert Layout.of(FEATURES).check(block(0), 0) == 0
