"""Why a stage runs, in rows and in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.artifact import Store
from tasks.reasons import NEVER, NO_RECORD, SHOWN, differences, newest, sentences, without_record


def test_differences_are_leaves_with_old_and_new() -> None:
    old = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "gone": 0}
    new = {"a": {"x": 2, "y": [1, 2]}, "b": 1, "new": {"z": 3}}
    assert differences(old, new) == [
        {"component": "a.x", "old": 1, "new": 2},
        {"component": "gone", "old": 0, "new": None},
        {"component": "new", "old": None, "new": {"z": 3}},
    ]
    assert differences(old, old) == []


def test_a_list_where_a_mapping_was_is_one_difference() -> None:
    assert differences({"a": {"x": 1}}, {"a": [1]}) == [{"component": "a", "old": {"x": 1}, "new": [1]}]


def manifest(store: Path, key: str, created: str, **provenance: Any) -> None:
    (store / "records" / "toy" / key).mkdir(parents=True)
    content = {"key": key, "provenance": {"created": created, "stage": "convert", **provenance}}
    (store / "records" / "toy" / key / "manifest.json").write_text(json.dumps(content))


def test_the_newest_artifact_of_a_stage_is_the_last_that_was_made(tmp_path: Path) -> None:
    assert newest(Store(tmp_path), "toy") == {}
    for key, created in (("a", "2026-01-02"), ("b", "2026-01-03"), ("c", "2026-01-01")):
        manifest(tmp_path, key, created)
    manifest(tmp_path, "d", "2026-01-04", stage="part")
    manifest(tmp_path, "e", "2026-01-05")
    (tmp_path / "records" / "toy" / "e" / "manifest.json").write_text("[")
    manifest(tmp_path, "f", "2026-01-01", stage=["no", "name"])
    found = newest(Store(tmp_path), "toy")
    assert {stage: made["key"] for stage, made in found.items()} == {"convert": "b", "part": "d"}
    assert newest(Store(tmp_path), "other") == {}


def test_a_key_that_the_cache_does_not_know_is_explained() -> None:
    past = {"provenance": {"components": {"code": {"m:f": "1"}, "inputs": {"raw": "a"}}}}
    now = {"code": {"m:f": "2", "m:g": "1"}, "inputs": {"raw": "b"}}
    assert sentences(without_record(past, now, there=False)) == ["code m:f changed", "code m:g new", "raw: a -> b"]
    assert sentences(without_record(None, now, there=False)) == [NEVER]
    assert sentences(without_record(past, past["provenance"]["components"], there=True)) == [NO_RECORD]


@pytest.mark.parametrize("count", [SHOWN, SHOWN + 3])
def test_many_reasons_are_counted(count: int) -> None:
    said = sentences(differences({}, {f"p{i}": i for i in range(count)}))
    assert len(said) == min(count, SHOWN + 1)
    assert (said[-1] == "... and 3 more") == (count > SHOWN)


def test_numbers_and_digests_are_said_as_people_read_them() -> None:
    old = {"rate": {"float": (0.001).hex()}, "inputs": {"raw": "ab" * 32}, "parameters": {"name": "0x1"}}
    new = {"rate": {"float": (-0.0003).hex()}, "inputs": {"raw": "cd" * 32}, "parameters": {"name": "0x2"}}
    assert sentences(differences(old, new)) == [
        "raw: abababababab -> cdcdcdcdcdcd", "parameters.name: 0x1 -> 0x2", "rate: 0.001 -> -0.0003",
    ]  # fmt: skip
