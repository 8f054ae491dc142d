from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import recorded

from datasets.errors import ArtifactDamaged, ParameterError, UnknownNameError
from tasks.artifact import Artifact, Store
from tasks.run_record import artifact, find_run, last_made, runs_of


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Store, dict[str, Any], dict[str, Any]]:
    return recorded.two_runs(tmp_path)


def test_a_record_names_what_was_made_and_no_path(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, _ = runs
    assert [stage["name"] for stage in first["stages"]] == [*first["made"]]
    assert first["recipe"]["learning_rate"] == 1e-2
    assert artifact(first, "fit") == store.find("weights", "toy", first["made"]["fit"]["key"])
    assert isinstance(artifact(first, "fit"), Artifact)
    assert "artifacts" not in first
    assert recorded._HOME.name not in json.dumps(first)
    assert find_run(store, first["run"]) == first


def test_what_the_last_run_used(runs: tuple[Store, dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    store, first, second = runs
    folder = store.root / "runs" / "toy"
    for age, record in enumerate((first, second)):
        os.utime(folder / f"{record['run']}.json", (1e9 + age, 1e9 + age))
    assert last_made(store, "toy") == [artifact(second, stage["name"]) for stage in second["stages"]]
    os.utime(folder / f"{first['run']}.json", (2e9, 2e9))
    assert last_made(store, "toy") == [artifact(first, stage["name"]) for stage in first["stages"]]
    (folder / f"{first['run']}.json").write_text("{}")
    assert last_made(store, "toy") == last_made(store, "other") == last_made(Store(tmp_path / "none"), "toy") == []


def test_a_run_is_found_by_all_of_its_names(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, second = runs
    assert [record["run"] for record in runs_of(store)] == [second["run"], first["run"]]
    key = second["made"]["fit"]["key"]
    for name in ("toy", second["run"], "bbbb", key, key[:6], f"toy/{key}", f"store/weights/toy/{key}"):
        assert find_run(store, name)["run"] == second["run"], name
    for name in ("aaaa1111-one", "toy/aaaa", "toy/v1", "toy/champion", "store/models/toy/v1"):
        assert find_run(store, name)["run"] == first["run"], name


def test_a_name_of_no_run_or_of_several_is_refused(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, second = runs
    for name in ("cccc", "aaa", "other", "toy/v2", "other/v1"):
        with pytest.raises(UnknownNameError):
            find_run(store, name)
    folder = store.root / "runs" / "toy"
    twin = {**first, "run": "bbbb3333", "finished": 0}
    (folder / "bbbb3333.json").write_text(json.dumps(twin))
    with pytest.raises(ParameterError, match="more digits"):
        find_run(store, "bbbb")
    assert find_run(store, "bbbb3333") == twin
    (folder / "aaaa1111-one-0-3.json").write_text(json.dumps({**second, "run": "aaaa1111-one-0-3"}))
    assert find_run(store, "aaaa1111-one")["run"] == "aaaa1111-one"


def test_a_record_of_another_format_is_damaged(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, _ = runs
    path = store.root / "runs" / "toy" / f"{first['run']}.json"
    for content in ("[]", json.dumps({**first, "format": 0}), "{"):
        path.write_text(content)
        with pytest.raises(ArtifactDamaged):
            find_run(store, "toy")
