"""CSV, Parquet and JSON Lines: declared types whatever comes first, and each fault with its file, column and row."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.errors import DataFormatError, FetchError, GristmillError, ParameterError, SchemaError
from datasets.readers import delimited, jsonl, parquet
from datasets.readers import values as value_rules
from datasets.readers.faults import Faults, Place
from datasets.schema import Block, Columns, Feature

FLOAT, WHOLE = Feature("float32"), Feature("int64")
LABEL = Feature("int32", classes=("0", "1"))


def together(blocks: list[Block]) -> Columns:
    return {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}


def csv(folder: Path, data: str | bytes, features: dict[str, Feature], *, name: str = "t.csv", **more: Any) -> Columns:
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return together(list(delimited.blocks(folder, name, features, **more)))


def fails(kind: type[GristmillError], call: Callable[[], object], *facts: str) -> str:
    with pytest.raises(kind) as caught:
        call()
    for fact in facts:
        assert fact in str(caught.value)
    return str(caught.value)


# --- types that don't depend on the first block (C3)

LATE = 70_000  # more than a block of rows


def test_a_float_that_shows_late_among_missing_values(tmp_path: Path) -> None:
    data = "a,label\n" + ",1\n" * LATE + "3.5,0\n"
    fails(
        SchemaError, lambda: csv(tmp_path, data, {"a": FLOAT, "label": LABEL}),
        f"column 'a': {LATE} null", "row: 0", "file: t.csv",
    )  # fmt: skip
    filled = csv(tmp_path, data, {"a": FLOAT, "label": LABEL}, fill={"a": math.nan})
    assert np.isnan(filled["a"]).sum() == LATE
    assert filled["a"][-1] == 3.5
    assert filled["a"].dtype == np.float32


@pytest.mark.parametrize("feature", [WHOLE, LABEL])
def test_a_text_that_shows_late_among_numbers(tmp_path: Path, feature: Feature) -> None:
    data = "x,label\n" + "1,1\n" * LATE + "1,A\n"
    fails(
        SchemaError, lambda: csv(tmp_path, data, {"label": feature}),
        "column 'label': 1 not a", f"row: {LATE}", "'A'", "whole number" if feature is WHOLE else "'0', '1'",
    )  # fmt: skip


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_parquet_files_of_different_types_in_any_order(tmp_path: Path, names: tuple[str, str]) -> None:
    label = pa.array([0, 1], pa.int64())
    pq.write_table(pa.table({"x": pa.nulls(2), "label": label}), tmp_path / f"{names[0]}.parquet")
    pq.write_table(pa.table({"x": [1.5, 2.5], "label": label}), tmp_path / f"{names[1]}.parquet")
    features = {"x": FLOAT, "label": LABEL}
    got = together(list(parquet.blocks(tmp_path, "", features, fill={"x": math.nan})))
    assert got["label"].tolist() == [0, 1, 0, 1]
    assert sorted(got["x"][~np.isnan(got["x"])]) == [1.5, 2.5]
    fails(
        SchemaError, lambda: list(parquet.blocks(tmp_path, "", features)),
        "column 'x': 2 null", f"file: {names[0]}.parquet", "row: 0",
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_blocks_have_the_asked_rows_whatever_the_source(tmp_path: Path, rows: int) -> None:
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{i},{i % 2}\n" for i in range(7)))
    pq.write_table(
        pa.table({"x": range(7), "label": [str(i % 2) for i in range(7)]}), tmp_path / "t.parquet", row_group_size=2
    )
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"x": i, "label": str(i % 2)}) + "\n" for i in range(7)))
    for reader, name in ((delimited, "t.csv"), (parquet, "t.parquet"), (jsonl, "t.jsonl")):
        blocks = list(reader.blocks(tmp_path, name, {"x": FLOAT, "label": LABEL}, rows=rows))
        assert [(block.file, block.row) for block in blocks] == [(name, row) for row in range(0, 7, rows)]
        got = together(blocks)
        assert got["x"].tolist() == list(range(7))
        assert got["label"].tolist() == [i % 2 for i in range(7)]


# --- headers and encodings (C4)

HEADERS: dict[str, tuple[bytes, type[GristmillError], list[str]]] = {
    "UTF-16": ("label,p\n1,2\n".encode("utf-16"), DataFormatError, ["UTF-16 (BOM FF FE)", "expected UTF-8"]),
    "latin-1": ("label,p\ncafé,2\n".encode("latin-1"), DataFormatError, ["not valid UTF-8 at byte 11", "0xe9"]),
    "cut character": ("label,p\n1,é".encode()[:-1], DataFormatError, ["not valid UTF-8 at byte 10"]),
    "duplicate": (b"label,p,p\n1,2,3\n", SchemaError, ["duplicate column 'p' at positions 1 and 2"]),
    "spaces": (b"p, label \n1, 0\n", SchemaError, ["'label' not found", "['p', ' label ']", "surrounding spaces"]),
    "delimiter": (b"p;label\n1;0\n", SchemaError, ["not found", "['p;label']", "is the delimiter ';'?"]),
    "capitals": (b"P,label\n1,0\n", SchemaError, ["column 'p' not found", "it is spelled 'P'"]),
    "empty": (b"", DataFormatError, ["empty file"]),
    "header only": (b"p,label\n", DataFormatError, ["0 records"]),
    "too few values": (b"p,label\n1,1\n\n2\n", DataFormatError, ["row: 1 ", "expected: 2", "got: 1"]),
    "open quote": (b'p,label\n1,1\n"2,1\n3,1\n', DataFormatError, ["never closed"]),
    "open quote at the end": (b'p,label\n1,1\n2,"1\n3,1\n', DataFormatError, ["never closed", "row: 1"]),
}


@pytest.mark.parametrize("fault", HEADERS)
def test_csv_that_is_not_what_it_should_be(tmp_path: Path, fault: str) -> None:
    data, kind, facts = HEADERS[fault]
    fails(kind, lambda: csv(tmp_path, data, {"p": FLOAT, "label": LABEL}), "t.csv", *facts)


def test_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert csv(tmp_path, b"\xef\xbb\xbflabel,p\n1,2\n", {"label": LABEL, "p": FLOAT})["label"].tolist() == [1]


def test_invalid_utf8_after_many_pieces_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 64)
    good = "é,1\n" * 100
    data = f"p,label\n{good}".encode() + b"\xff,1\n"
    at = len(data) - 4
    fails(DataFormatError, lambda: csv(tmp_path, data, {"label": LABEL}), f"byte {at}", "0xff")


def test_row_of_a_fault_after_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 64)
    data = "p,label\n" + '"a\nb",1\n' * 50 + "1\n" + "2,1\n" * 50
    fails(DataFormatError, lambda: csv(tmp_path, data, {"label": LABEL}), "row: 50 ", "got: 1")


def test_parquet_with_a_name_twice(tmp_path: Path) -> None:
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([0]), pa.array([2])], ["x", "label", "x"]), tmp_path / "t.parquet"
    )
    fails(
        SchemaError, lambda: list(parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT})),
        "duplicate column 'x' at positions 0 and 2", "t.parquet",
    )  # fmt: skip


# --- line breaks in values, spelling of files (C5)


@pytest.mark.parametrize("n", [2, 300_000])
def test_quoted_line_breaks(tmp_path: Path, n: int) -> None:
    got = csv(tmp_path, "text,label\n" + '"ab\ncd",1\n' * n, {"text": Feature("uint8", (6,)), "label": LABEL})
    assert len(got["label"]) == n
    assert np.unique(got["text"], axis=0).tobytes() == b"ab\ncd\0"


def test_a_record_longer_than_a_block_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 1 << 10)
    data = "p,label\n" + "1,1\n" * 10 + f'"{"x" * 5000}",1\n'
    fails(
        DataFormatError,
        lambda: csv(tmp_path, data, {"label": LABEL}),
        "a record is longer than",
        "is a quote never closed?",
    )


def test_gzip_tabs_and_semicolons(tmp_path: Path) -> None:
    packed = gzip.compress(b"x\tlabel\n1.5\t1\n")
    assert csv(tmp_path, packed, {"x": FLOAT, "label": LABEL}, name="t.tsv.gz")["x"].tolist() == [1.5]
    assert csv(tmp_path, b"x;label\n1.5;1\n", {"x": FLOAT}, delimiter=";")["x"].tolist() == [1.5]
    fails(
        DataFormatError, lambda: csv(tmp_path, packed[:-9], {"x": FLOAT}, name="t.tsv.gz"), "truncated", "t.tsv.gz"
    )  # fmt: skip


def test_files_of_a_folder_or_pattern_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, x in (("b.csv", 2), ("a.csv", 1), ("_c.csv", 3), (".d.csv", 4), ("e.md", 5)):
        (tmp_path / name).write_text(f"x\n{x}\n")
    for where in ("", "*.csv"):
        blocks = list(delimited.blocks(tmp_path, where, {"x": FLOAT}))
        assert [(block.file, block.row, block.columns["x"].tolist()) for block in blocks] == [
            ("a.csv", 0, [1.0]),
            ("b.csv", 0, [2.0]),
        ]
    fails(FetchError, lambda: list(delimited.blocks(tmp_path, "c.csv", {"x": FLOAT})), "c.csv", "a.csv, b.csv")
    fails(FetchError, lambda: list(delimited.blocks(tmp_path, "c*", {"x": FLOAT})), "no file to read")


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
    for feature in (WHOLE, Feature("int64", classes=("2", "1"))):
        fails(
            SchemaError,
            lambda f=feature: list(parquet.blocks(tmp_path, "t.parquet", {"x": f})),
            "timestamp[us]",
            "int64",
        )


@pytest.mark.parametrize("text", sorted(value_rules.MISSING - {"nan", "-nan", "NaN"}))
def test_every_spelling_of_missing_is_missing(tmp_path: Path, text: str) -> None:
    got = csv(tmp_path, f"n,x\n1,1.5\n {text} ,{text}\n", {"n": WHOLE, "x": FLOAT}, fill={"n": -1, "x": 0.5})
    assert (got["n"].tolist(), got["x"].tolist()) == ([1, -1], [1.5, 0.5])
    fails(SchemaError, lambda: csv(tmp_path, f"n,m\n1,1\n{text},1\n", {"n": WHOLE}), "1 null", "row: 1", repr(text))


def test_nothing_follows_a_fault(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n2\nz\n4\n")
    blocks = delimited.blocks(tmp_path, "t.csv", {"x": FLOAT}, rows=1)
    assert [next(blocks).row, next(blocks).row] == [0, 1]
    fails(SchemaError, lambda: next(blocks), "'z' at row 2")


def test_fill_stands_for_missing_values_only(tmp_path: Path) -> None:
    got = csv(tmp_path, "n,x\n1,1.5\nNA,\n3,nan\n", {"n": WHOLE, "x": FLOAT}, fill={"n": -1, "x": 0.5})
    assert got["n"].tolist() == [1, -1, 3]
    assert got["x"].tolist() == [1.5, 0.5, 0.5]
    fails(ParameterError, lambda: csv(tmp_path, "n\n1\n", {"n": WHOLE}, fill={"n": 0.5}), "0.5", "int64")
    fails(ParameterError, lambda: csv(tmp_path, "n\n1\n", {"n": WHOLE}, fill={"m": 0}), "m")


def test_columns_side_by_side_make_a_vector(tmp_path: Path) -> None:
    data = "a,b,c\n1,2,3\n4,5,6\n"
    got = csv(tmp_path, data, {"v": Feature("float32", (2,)), "k": WHOLE}, columns={"v": ["c", "a"], "k": "b"})
    assert got["v"].tolist() == [[3, 1], [6, 4]]
    assert got["k"].tolist() == [2, 5]
    fails(
        ParameterError, lambda: csv(tmp_path, data, {"v": Feature("float32", (3,))}, columns={"v": ["c", "a"]}),
        "2 columns", "(3,)",
    )  # fmt: skip
    fails(
        SchemaError, lambda: csv(tmp_path, "a,b\n1,x\n", {"v": Feature("float32", (2,))}, columns={"v": ["a", "b"]}),
        "column 'b': 1 not a number", "'x'",
    )  # fmt: skip


def test_text_as_bytes_must_fit(tmp_path: Path) -> None:
    feature = {"t": Feature("uint8", (4,))}
    assert csv(tmp_path, "t,x\né,1\n,2\nabcd,3\n", feature)["t"].tolist() == [
        [0xC3, 0xA9, 0, 0],
        [0] * 4,
        list(b"abcd"),
    ]
    fails(SchemaError, lambda: csv(tmp_path, "t,x\nabcde,1\n", feature), "1 too long", "row: 0", "at most 4 bytes")


# --- Parquet folders (C9), vectors (C11), partitions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").write_bytes(b"crc")
    pq.write_table(
        pa.table({"x": pa.array([], pa.float64()), "label": pa.array([], pa.int64())}), tmp_path / "none.parquet"
    )
    return tmp_path


def read_folder(folder: Path) -> list[Block]:
    return list(parquet.blocks(folder, "", {"x": FLOAT, "label": LABEL}))


def test_markers_are_no_data_and_an_empty_file_is_seen(folder: Path) -> None:
    assert [(block.file, len(block.columns["x"])) for block in read_folder(folder)] == [
        ("a.parquet", 2),
        ("none.parquet", 0),
    ]
    (folder / "a.parquet").unlink()
    fails(DataFormatError, lambda: read_folder(folder), "0 records")


def test_an_empty_or_cut_file_is_found_before_the_first_block(folder: Path) -> None:
    whole = (folder / "a.parquet").read_bytes()
    for data, fact in (
        (b"", "0 bytes"),
        (whole[:-1], "footer missing"),
        (whole[:-8] + b"\xff\xff\xff\x7fPAR1", "not a Parquet"),
    ):
        (folder / "z.parquet").write_bytes(data)
        fails(DataFormatError, lambda: next(parquet.blocks(folder, "", {"x": FLOAT})), fact, "z.parquet")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    pool = pa.default_memory_pool()

    def peak(groups: int) -> int:
        pq.write_table(
            pa.table({"x": np.random.default_rng(0).random(groups * 20_000)}), tmp_path / "t.parquet",
            row_group_size=20_000, use_dictionary=False, compression="none",
        )  # fmt: skip
        before = pool.bytes_allocated()
        blocks = parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT}, rows=10_000)
        return max(pool.bytes_allocated() - before for _ in blocks)

    assert 0 < peak(40) < 2 * peak(4)


def test_a_damaged_page_names_its_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "t.parquet", compression="zstd", use_dictionary=False)
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[60:200] = b"\xff" * 140
    (tmp_path / "t.parquet").write_bytes(data)
    fails(
        DataFormatError,
        lambda: list(parquet.blocks(tmp_path, "t.parquet", {"x": FLOAT})),
        "damaged Parquet",
        "t.parquet",
    )


def test_hive_partitions_are_text_columns(tmp_path: Path) -> None:
    for year, kind in ((2023, "a%20b"), (2024, "c")):
        part = tmp_path / "data" / f"year={year}" / f"kind={kind}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"x": [float(year), 1.0]}), part / "p.parquet")
    features = {"x": FLOAT, "year": WHOLE, "kind": Feature("int32", classes=("c", "a b"))}
    blocks = list(parquet.blocks(tmp_path, "data", features))
    assert [block.file for block in blocks] == [
        "data/year=2023/kind=a%20b/p.parquet",
        "data/year=2024/kind=c/p.parquet",
    ]
    got = together(blocks)
    assert got["year"].tolist() == [2023, 2023, 2024, 2024]
    assert got["kind"].tolist() == [1, 1, 0, 0]
    only = together(list(parquet.blocks(tmp_path, "data", {"year": WHOLE})))
    assert only["year"].tolist() == [2023, 2023, 2024, 2024]


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


# --- JSON Lines (C12, C13)


def lines(folder: Path, data: str | bytes, features: dict[str, Feature], **more: Any) -> Columns:
    (folder / "t.jsonl").write_bytes(data if isinstance(data, bytes) else data.encode())
    return together(list(jsonl.blocks(folder, "t.jsonl", features, **more)))


def test_a_list_that_starts_with_null(tmp_path: Path) -> None:
    data = '{"a":[null,1],"label":0}\n{"a":[2,3],"label":1}\n'
    features = {"a": Feature("float32", (2,)), "label": LABEL}
    fails(SchemaError, lambda: lines(tmp_path, data, features), "column 'a': 1 null", "row: 0")
    assert lines(tmp_path, data, features, fill={"a": -1})["a"].tolist() == [[-1, 1], [2, 3]]


def test_a_long_string_is_read(tmp_path: Path) -> None:
    data = json.dumps({"t": "x" * 3_000_000, "a": 1}) + "\n"
    assert lines(tmp_path, data, {"a": WHOLE})["a"].tolist() == [1]
    assert lines(tmp_path, data, {"t": Feature("uint8", (3_000_000,))})["t"].sum() == 3_000_000 * ord("x")


BAD_LINES: dict[str, tuple[str, list[str]]] = {
    "array": ('[{"a":1},{"a":2}]', ["not JSON Lines: file starts with '['"]),
    "pretty": ('{\n "a": 1\n}\n', ["not JSON Lines", "line: 1"]),
    "type": ('{"a":1}\n{"a":"x"}\n', ["line: 2", "from number to string", "'x'"]),
    "cut": ('{"a":1}\n{"a":2,"l"', ["line: 2", "looks truncated"]),
    "twice": ('{"a":1,"a":2}\n', ["line: 1", "duplicate member 'a'"]),
    "scalar": ("3\n", ["line: 1", "isn't an object"]),
    "empty": ("\n\n", ["0 records"]),
    "surrogate": ('{"a":"\\ud800"}\n', ["line: 1", "surrogates"]),
    "mixed list": ('{"a":1}\n{"a":[1,"x"]}\n', ["line: 2"]),
    "huge": ('{"a":1}\n{"a":99999999999999999999}\n', ["line: 2"]),
}


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("fault", BAD_LINES)
def test_json_that_is_not_what_it_should_be(tmp_path: Path, fault: str, rows: int) -> None:
    data, facts = BAD_LINES[fault]
    fails(DataFormatError, lambda: lines(tmp_path, data, {"a": WHOLE}, rows=rows), "t.jsonl", *facts)


def test_json_values_and_members_that_are_missing(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"a":1,"b":true}\n\n{"b":false,"extra":{}}\n'
    got = lines(tmp_path, data, {"a": FLOAT, "b": Feature("bool")}, fill={"a": 7})
    assert got["a"].tolist() == [1, 7]
    assert got["b"].tolist() == [True, False]
    fails(SchemaError, lambda: lines(tmp_path, data, {"a": FLOAT}), "column 'a': 1 null", "row: 1")
    fails(SchemaError, lambda: lines(tmp_path, '{"a":NaN}\n', {"a": FLOAT}), "1 nan")
