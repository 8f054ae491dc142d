"""A week of nights with real stages on toy data: better, equal and worse candidates, limits, force and rollback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from test_promote import ROWS, TRUTH, answers

import datasets
from datasets.schema import Gate
from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.evaluate import evaluate_weights
from tasks.handover import hand_over
from tasks.promote import promote_candidate
from tasks.registry import Registry
from tasks.request import Request


def night(request: Request, records: Artifact, key: str, said: np.ndarray) -> dict[str, Any]:
    """Evaluates and decides about weights that answer so."""
    weights = toy.weights_that_say(request, said, key, strength=5.0 + len(key) / 100)
    evaluation = evaluate_weights(toy.job(request, "evaluate", key), records, weights)
    decision = promote_candidate(toy.job(request, "promote", key), records, weights, evaluation)
    store = Store(request.store)
    assert read_json(store.path(decision) / "decision.json") == store.facts(decision)
    assert (store.path(decision) / "decision.md").stat().st_size > 200
    return store.facts(decision)


def test_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = toy.table_request(tmp_path, ROWS, gate=Gate(minimum={"accuracy": 0.75}, max_class_drop=0.1))
    monkeypatch.setattr(datasets, "names", lambda: ["toy"])
    monkeypatch.setattr(datasets, "load", lambda name: request.dataset)
    records = toy.records_of(request)
    registry = Registry(Store(tmp_path), "toy")
    lopsided = answers(10)
    lopsided[[11, 14, 17]] = 0  # three of twenty in the third class
    week = [
        ("sunday", answers(0, 20), False, "outside its limits"),  # 30 of 60
        ("monday", answers(), True, "first"),
        ("tuesday", answers(0), False, "tie"),
        ("wednesday", answers(0, 3), False, "not better"),
        ("thursday", answers(6), True, "better"),
        ("friday-", lopsided, False, "not better"),
        ("saturday", answers(10), False, "not better"),  # four more, which chance explains
    ]
    found = []
    for key, said, _, _ in week:
        before = registry.pointer.read_bytes() if registry.pointer.exists() else None
        decision = night(request, records, key, said)
        found.append((key, decision["promoted"], decision["outcome"]))
        assert decision["records"] == records.digest
        if not decision["promoted"]:
            assert (registry.pointer.read_bytes() if registry.pointer.exists() else None) == before
    assert found == [(key, promoted, outcome) for key, _, promoted, outcome in week]
    assert registry.versions() == ["v1", "v2"]

    def by_hand(**options: Any) -> dict[str, Any]:
        return hand_over("toy", store=str(tmp_path), **options)

    assert by_hand(rollback=True)["champion"] == "v1"
    assert night(request, records, "thursday", answers(6))["promoted"] is True  # only if its decision isn't cached
    assert by_hand(rollback=True)["champion"] == "v1"
    report = by_hand(candidate="newest", by="Ada")
    assert report["champion"] == "v3"
    assert [row["outcome"] for row in report["refused"]].count("tie") == 1
    assert night(replace(request), records, "next", TRUTH)["champion_before"] == "v3"
    assert {row["how"] for row in by_hand()["by_hand"]} == {"rollback", "forced"}
