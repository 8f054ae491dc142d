"""JSON Lines: each line an object of known types, or its fault with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_cases import FLOAT, LABEL, WHOLE, fails, lines

from datasets.errors import DataFormatError, SchemaError
from datasets.schema import Feature


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
