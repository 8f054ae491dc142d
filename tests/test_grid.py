from __future__ import annotations

import sys
from typing import Any

import pytest

from datasets.errors import ParameterError, UnknownNameError
from tasks.grid import combinations, grid_of, ranges_of, search


def test_values_are_read_from_a_command_and_from_json_alike() -> None:
    typed = grid_of({"learning_rate": "1e-4,1e-3", "model": "mlp,cnn", "batch_size": 64, "clip_norm": "null,1.0"})
    assert typed == {
        "learning_rate": [1e-4, 1e-3], "model": ["mlp", "cnn"], "batch_size": [64], "clip_norm": [None, 1.0]
    }  # fmt: skip
    assert grid_of({"learning_rate": [1e-4, 1e-3]}) == grid_of({"learning_rate": "1e-4,1e-3"})
    assert grid_of(None) == {}


def test_every_combination_is_tried_once() -> None:
    assert [*combinations({"a": [1, 2], "b": ["x", "y"]})] == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert [*combinations({})] == [{}]


@pytest.mark.parametrize(
    "given", [{"seed": "1,2"}, {"learning_rate": "1e-3,1e-3"}, {"learning_rate": "1e-3,0.001"}, {"augment": "a"}]
)
def test_a_grid_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        grid_of(given)


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="learning_rate"):
        grid_of({"learning_rat": "1"})
    with pytest.raises(UnknownNameError):
        ranges_of({"epoch": "1,2"}, {})


def test_ranges_have_two_ends() -> None:
    assert ranges_of({"learning_rate": "1e-5,1e-2", "batch_size": [16, 64]}, {}) == {
        "learning_rate": (1e-5, 1e-2), "batch_size": (16, 64)
    }  # fmt: skip
    for given in ("1e-5", "1e-2,1e-5", "1,2,3", "a,b", "true,2", "1,1"):
        with pytest.raises(ParameterError):
            ranges_of({"learning_rate": given}, {})
    with pytest.raises(ParameterError, match="searched"):
        ranges_of({"learning_rate": "1e-5,1e-2"}, {"learning_rate": [1e-3]})


def test_a_search_without_a_space_or_without_optuna_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="nothing to search"):
        search({}, {}, 3, 0, lower=False, measure=lambda changes: 1.0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ParameterError, match="pip install optuna"):
        search({}, {"learning_rate": (1e-5, 1e-2)}, 3, 0, lower=False, measure=lambda changes: 1.0)


def test_a_search_finds_the_best_and_proposes_the_same_again() -> None:
    pytest.importorskip("optuna")

    def tried(*, lower: bool) -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []

        def measure(changes: dict[str, Any]) -> float | None:
            seen.append(changes)
            if changes["model"] == "cnn" and len(seen) % 7 == 0:
                return None  # it failed
            distance = abs(changes["batch_size"] - 40) / 100 + (changes["model"] == "mlp")
            return distance if lower else -distance

        grid = {"model": ["mlp", "cnn"], "decay": ["all"]}
        search(grid, {"batch_size": (16, 128), "learning_rate": (1e-5, 1e-2)}, 40, 3, lower=lower, measure=measure)
        return seen

    first = tried(lower=True)
    assert first == tried(lower=True)
    assert first == tried(lower=False)
    assert len(first) == 40
    assert {one["decay"] for one in first} == {"all"}
    assert all(isinstance(one["batch_size"], int) and 16 <= one["batch_size"] <= 128 for one in first)
    assert all(1e-5 <= one["learning_rate"] <= 1e-2 for one in first)
    assert sum(one["learning_rate"] < 1e-3 for one in first) > 10  # on a logarithmic scale
    late = first[-10:]
    assert sum(one["model"] == "cnn" for one in late) >= 7
