"""Values of any table as the declared feature: exact, or counted and placed; classes, fills, bytes and lists."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_cases import FLOAT, WHOLE, csv, fails, lines, together

from datasets.errors import ParameterError, SchemaError
from datasets.readers import parquet
from datasets.readers import values as value_rules
from datasets.readers.faults import Faults, Place
from datasets.schema import Columns, Feature

# --- class names that look like something else (C6)


def test_class_names_are_taken_to_the_letter(tmp_path: Path) -> None:
    data = 'x,label\n1,001\n2,"002"\n3,NA\n'
    assert csv(tmp_path, data, {"label": Feature("int32", classes=("001", "002", "NA"))})["label"].tolist() == [0, 1, 2]
    assert csv(tmp_path, "c\nNA\nSE\n", {"c": Feature("int32", classes=("NA", "SE"))})["c"].tolist() == [0, 1]
    fails(SchemaError, lambda: csv(tmp_path, data, {"label": WHOLE}), "column 'label': 1 null", "row: 2", "'NA'")
    fails(
        SchemaError, lambda: csv(tmp_path, data, {"label": Feature("int32", classes=("1", "2", "NA"))}),
        "2 not a class", "'001' at row 0",
    )  # fmt: skip


def test_numbers_are_indices_unless_names_are_other_numbers(tmp_path: Path) -> None:
    table = pa.table({"label": pa.array([1, 0], pa.int64())})
    pq.write_table(table, tmp_path / "t.parquet")

    def labels(*classes: str) -> list[list[int]]:
        features = {"label": Feature("int32", classes=classes)}
        from_parquet = together(list(parquet.blocks(tmp_path, "t.parquet", features)))
        return [csv(tmp_path, "label\n1\n0\n", features)["label"].tolist(), from_parquet["label"].tolist()]

    assert labels("ham", "spam") == [[1, 0], [1, 0]]
    assert labels("1", "0") == [[0, 1], [0, 1]]
    assert labels("0", "1") == [[1, 0], [1, 0]]
    assert labels("0", "spam") == [[1, 0], [1, 0]]
    fails(SchemaError, lambda: labels("1", "2"), "1 not a class", "'0' at row 1")
    # pandas writes whole numbers beside nulls as floats.
    pq.write_table(pa.table({"label": [1.0, 0.0]}), tmp_path / "t.parquet")
    assert labels("1", "0")[1] == [0, 1]


@pytest.mark.parametrize(("classes", "expected"), [(("no", "yes"), [1, 0]), (("true", "false"), [0, 1])])
def test_true_and_false_as_labels(tmp_path: Path, classes: tuple[str, ...], expected: list[int]) -> None:
    got = lines(tmp_path, '{"label":true}\n{"label":false}\n', {"label": Feature("int32", classes=classes)})
    assert got["label"].tolist() == expected


def test_a_column_of_nothing_but_null(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.nulls(2)}), tmp_path / "t.parquet")
    for feature in (Feature("float32"), Feature("float32", (2,)), Feature("int32", classes=("a", "b"))):
        fails(SchemaError, lambda f=feature: list(parquet.blocks(tmp_path, "t.parquet", {"x": f})), "2 null", "row: 0")


# --- numbers that don't fit (C7)

WIDE = "id,x,label\n9223372036854775808,1e400,0\n9007199254740993,nan,1\n4294967299,-inf,0\n"


def test_whole_numbers_are_exact_or_refused(tmp_path: Path) -> None:
    fails(
        SchemaError, lambda: csv(tmp_path, WIDE, {"id": WHOLE}),
        "column 'id': 1 outside of int64", "row: 0", "9223372036854775808",
    )  # fmt: skip
    fits = WIDE.replace("9223372036854775808", "9223372036854775807")
    assert csv(tmp_path, fits, {"id": WHOLE})["id"].tolist() == [2**63 - 1, 9007199254740993, 4294967299]
    assert csv(tmp_path, WIDE, {"id": Feature("uint64")})["id"][0] == 2**63
    fails(SchemaError, lambda: csv(tmp_path, fits, {"id": Feature("int32")}), "3 outside of int32", "row: 0")


def test_numbers_that_are_not_finite_are_counted_and_placed(tmp_path: Path) -> None:
    text = fails(SchemaError, lambda: csv(tmp_path, WIDE, {"x": FLOAT}), "column 'x'", "1 inf", "1 -inf", "1 nan")
    assert "inf at row 0, nan at row 1, -inf at row 2" in text
    fails(SchemaError, lambda: csv(tmp_path, WIDE, {"x": FLOAT}, fill={"x": 0.0}), "1 inf, 1 -inf\n")
    fails(SchemaError, lambda: csv(tmp_path, "x\n1e39\n", {"x": FLOAT}), "too large for float32", "row: 0")
    assert csv(tmp_path, "x\n1e39\n", {"x": Feature("float64")})["x"][0] == 1e39


TEXTS = ["1", " 1 ", "+1", "-1", "0x10", "1.0", "1e3", ".5", "true", "x", "", "NA", "1_0", "١", "9" * 25]


def test_a_scalar_is_no_vector(tmp_path: Path) -> None:
    fails(SchemaError, lambda: csv(tmp_path, "x\n1\n", {"x": Feature("float32", (2,))}), "column 'x'", "string", "[2]")
    assert csv(tmp_path, "x\n1\n", {"x": Feature("float32", (1,))})["x"].tolist() == [[1]]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64", "bool"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_same_value_alone_and_among_odd_ones(dtype: str, text: str) -> None:
    def read(texts: list[str]) -> tuple[np.ndarray, bool]:
        faults = Faults("f")
        place = Place(faults, "c", 0)
        return value_rules.from_arrow(pa.array(texts), Feature(dtype), place), bool(faults)

    alone, wrong_alone = read([text])
    odd = "false" if dtype == "bool" else "+5"
    beside, wrong_beside = read([text, odd])
    assert wrong_alone == wrong_beside
    if not wrong_alone:
        assert alone[0] == beside[0]


@pytest.mark.parametrize(
    ("values", "dtype", "what"),
    [
        (pa.array([1.0, 2.5]), "int32", "1 not a whole number"),
        (pa.array([1, 300]), "uint8", "1 outside of uint8"),
        (pa.array([1, -1]), "uint64", "1 outside of uint64"),
        (pa.array([2**63], pa.uint64()), "int64", "1 outside of int64"),
        (pa.array([2.0**63]), "int64", "1 outside of int64"),
        (pa.array([0, 2]), "bool", "1 outside of bool"),
        (pa.array([1, None]), "int32", "1 null"),
        (pa.array([True, None]), "bool", "1 null"),
        (pa.array([Decimal("3.50")], pa.decimal128(5, 2)), "int32", "1 not a whole number"),
        (pa.array([Decimal(2**63)], pa.decimal128(20, 0)), "int64", "1 outside of int64"),
    ],
)
def test_typed_columns_that_do_not_fit(tmp_path: Path, values: pa.Array, dtype: str, what: str) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    fails(
        SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", {"x": Feature(dtype)})), f"column 'x': {what}"
    )


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (pa.array([1.0, 2.0]), "int32", [1, 2]),
        (pa.array([True, False]), "uint8", [1, 0]),
        (pa.array([2**63], pa.uint64()), "uint64", [2**63]),
        (pa.array(["a", "b"]).dictionary_encode(), "int8", [0, 1]),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "float32", [1.5]),
        (pa.array([Decimal(2**53 + 1)], pa.decimal128(20, 0)), "int64", [2**53 + 1]),
        (pa.array([Decimal(2**63 + 1)], pa.decimal128(20, 0)), "uint64", [2**63 + 1]),
        (pa.array([Decimal("3.00")], pa.decimal128(5, 2)), "int32", [3]),
    ],
)
def test_typed_columns_that_fit(tmp_path: Path, values: pa.Array, dtype: str, expected: list[Any]) -> None:
    classes = ("a", "b") if dtype == "int8" else ()
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    got = together(list(parquet.blocks(tmp_path, "t.parquet", {"x": Feature(dtype, classes=classes)})))["x"]
    assert got.tolist() == expected
    assert got.dtype == dtype


def test_a_type_that_can_never_fit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0], pa.timestamp("us"))}), tmp_path / "t.parquet")
    for feature in (FLOAT, Feature("int64", classes=("2", "1")), Feature("int64", classes=("no", "yes"))):
        fails(
            SchemaError,
            lambda f=feature: list(parquet.blocks(tmp_path, "t.parquet", {"x": f})),
            "timestamp[us]",
            feature.dtype,
        )


@pytest.mark.parametrize("text", sorted(value_rules.MISSING - {"nan", "-nan", "NaN"}))
def test_every_spelling_of_missing_is_missing(tmp_path: Path, text: str) -> None:
    got = csv(tmp_path, f"n,x\n1,1.5\n {text} ,{text}\n", {"n": WHOLE, "x": FLOAT}, fill={"n": -1, "x": 0.5})
    assert (got["n"].tolist(), got["x"].tolist()) == ([1, -1], [1.5, 0.5])
    fails(SchemaError, lambda: csv(tmp_path, f"n,m\n1,1\n{text},1\n", {"n": WHOLE}), "1 null", "row: 1", repr(text))


def test_fill_stands_for_missing_values_only(tmp_path: Path) -> None:
    got = csv(tmp_path, "n,x\n1,1.5\nNA,\n3,nan\n", {"n": WHOLE, "x": FLOAT}, fill={"n": -1, "x": 0.5})
    assert got["n"].tolist() == [1, -1, 3]
    assert got["x"].tolist() == [1.5, 0.5, 0.5]
    fails(ParameterError, lambda: csv(tmp_path, "n\n1\n", {"n": WHOLE}, fill={"n": 0.5}), "0.5", "int64")
    fails(ParameterError, lambda: csv(tmp_path, "n\n1\n", {"n": WHOLE}, fill={"m": 0}), "m")


def test_text_as_bytes_must_fit(tmp_path: Path) -> None:
    feature = {"t": Feature("uint8", (4,))}
    assert csv(tmp_path, "t,x\né,1\n,2\nabcd,3\n", feature)["t"].tolist() == [
        [0xC3, 0xA9, 0, 0],
        [0] * 4,
        list(b"abcd"),
    ]
    fails(SchemaError, lambda: csv(tmp_path, "t,x\nabcde,1\n", feature), "1 too long", "row: 0", "at most 4 bytes")


def test_whole_numbers_as_bytes_tell_ids_beyond_int32_apart(tmp_path: Path) -> None:
    ids = [2**40, 2**40 + 2**32, -1, 2**63 - 1]
    feature = {"id": Feature("uint8", (8,))}
    pq.write_table(pa.table({"id": ids}), tmp_path / "t.parquet")
    got = together(list(parquet.blocks(tmp_path, "t.parquet", feature)))["id"]
    assert got.view("<i8").reshape(-1).tolist() == ids
    for wrong, what in ((pa.array([2**63], pa.uint64()), "1 outside of int64"), (pa.array([1, None]), "1 null")):
        pq.write_table(pa.table({"id": wrong}), tmp_path / "t.parquet")
        fails(SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", feature)), what)


# --- vectors (C11)

VECTOR = {"vec": Feature("int32", (2,)), "label": Feature("int64")}


@pytest.mark.parametrize("kind", [pa.list_(pa.int32(), 2), pa.list_(pa.int32()), pa.large_list(pa.int32())])
def test_lists_in_batches(tmp_path: Path, kind: pa.DataType) -> None:
    vectors = pa.array([[0, 1], [2, 3], [4, 5], [6, 7]], kind)
    pq.write_table(pa.table({"vec": vectors, "label": [0, 1, 2, 3]}), tmp_path / "t.parquet")
    blocks = list(parquet.blocks(tmp_path, "t.parquet", VECTOR, rows=2))
    assert blocks[1].columns["vec"].tolist() == [[4, 5], [6, 7]]
    got = value_rules.from_arrow(vectors.slice(1, 2), VECTOR["vec"], Place(Faults("f"), "vec", 0))
    assert got.tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("kind", [pa.list_(pa.int32(), 2), pa.list_(pa.int32())])
def test_a_null_list_is_refused_with_its_row(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(
        pa.table({"vec": pa.array([[1, 2], None, [3, 4]], kind), "label": [0, 1, 2]}), tmp_path / "t.parquet"
    )
    fails(SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", VECTOR)), "column 'vec': 1 null", "row: 1")


def test_ragged_lists_and_nulls_inside(tmp_path: Path) -> None:
    def read(vectors: list[Any]) -> Columns:
        pq.write_table(pa.table({"vec": vectors, "label": range(len(vectors))}), tmp_path / "t.parquet")
        return together(list(parquet.blocks(tmp_path, "t.parquet", VECTOR)))

    fails(SchemaError, lambda: read([[1, 2], [3]]), "column 'vec'", "row: 1", "length 1", "a list of 2")
    fails(SchemaError, lambda: read([[1, 2], [3, 4], [5, None]]), "column 'vec': 1 null", "row: 2")


def test_nested_and_flat_lists_fit_a_matrix(tmp_path: Path) -> None:
    feature = {"m": Feature("float32", (2, 3))}
    for rows in ([[[1, 2, 3], [4, 5, 6]]], [[1, 2, 3, 4, 5, 6]]):
        pq.write_table(pa.table({"m": rows}), tmp_path / "t.parquet")
        assert together(list(parquet.blocks(tmp_path, "t.parquet", feature)))["m"].tolist() == [[[1, 2, 3], [4, 5, 6]]]
    pq.write_table(pa.table({"m": [[[1, 2, 3], [4, 5]]]}), tmp_path / "t.parquet")
    fails(SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", feature)), "length 2", "a list of 3")
