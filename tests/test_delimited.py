"""CSV: declared types whatever comes first, headers, encodings and quotes, each fault with its byte or row."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from table_cases import FLOAT, LABEL, WHOLE, csv, fails

from datasets.errors import DataFormatError, GristmillError, SchemaError
from datasets.readers import delimited
from datasets.schema import Feature

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
