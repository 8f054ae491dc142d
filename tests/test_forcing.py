"""Candidates that were refused are listed, and a named person can make one the champion; it is recorded by whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy
from rich.console import Console
from test_promote import BASE, ROWS, Nights, answers

import datasets
from datasets.errors import ParameterError, StoreError, UnknownNameError
from datasets.schema import Feature, Gate
from tasks.durable import read_json
from tasks.handover import hand_over, show


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """A champion, and two candidates that were refused."""
    request = toy.table_request(tmp_path, ROWS)
    monkeypatch.setattr(datasets, "names", lambda: ["toy"])
    monkeypatch.setattr(datasets, "load", lambda name: request.dataset)
    made = Nights(request, toy.records_of(request))
    made.promote("first", BASE)
    made.promote("second", answers(1))
    gated = replace(request, dataset=replace(request.dataset, gate=Gate(minimum={"accuracy": 0.99})))
    made.promote("third", answers(8), gated)
    return made


def call(nights: Nights, **options: Any) -> dict[str, Any]:
    return hand_over("toy", store=str(nights.request.store), **options)


def test_refused_candidates_are_listed_with_reasons(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    report = call(nights)
    found = {row["candidate"]: (row["outcome"], row["reason"]) for row in report["refused"]}
    assert found.keys() == {nights.digest("second", answers(1)), nights.digest("third", answers(8))}
    assert found[nights.digest("third", answers(8))][0] == "outside its limits"
    show(report, Console(width=200))
    assert f"candidate {nights.digest('second', answers(1))[:12]} (not better)" in capsys.readouterr().out


def test_a_refused_candidate_is_forced_by_a_named_person(nights: Nights) -> None:
    wanted = nights.digest("second", answers(1))
    report = call(nights, candidate=wanted[:8], by="Ada Lovelace")
    assert report["champion"] == "v2"
    champion = nights.registry.champion()
    assert champion is not None
    assert champion.weights == wanted
    assert champion.previous == nights.digest("first", BASE)
    folder = nights.store.path(champion.model)
    decision = read_json(folder / "decision.json")
    assert (decision["promoted"], decision["outcome"], decision["forced_by"]) == (True, "forced", "Ada Lovelace")
    assert decision["reason"].startswith("forced by Ada Lovelace; it had been refused: not better than the champion")
    assert decision["test"]["wins"] == 1
    assert "Ada Lovelace" in (folder / "card.md").read_text()
    (change,) = report["by_hand"]
    assert (change["by"], change["how"], change["from"], change["to"]) == ("Ada Lovelace", "forced", "v1", "v2")
    assert call(nights, rollback=True)["champion"] == "v1"


def test_a_forced_champion_is_the_one_to_beat(nights: Nights) -> None:
    call(nights, candidate=nights.digest("second", answers(1))[:12], by="Ada")
    assert nights.rival("second", answers(1)) == nights.digest("first", BASE)  # the refusal stays cached
    decision = nights.promote("fourth", answers(7))
    assert (decision["champion_before"], decision["test"]["champion_correct"]) == ("v2", 51)


def test_the_newest_of_a_changed_schema(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nights.request.dataset
    more = replace(made, features={**made.features, "label": Feature("int32", classes=(*toy.CLASSES, "star"))})
    weights, evaluation = nights.candidate("second", answers(1))
    assert evaluation
    refusal = nights.promote("star", answers(2), replace(nights.request, dataset=more))
    assert refusal["outcome"] == "schema changed"
    assert refusal["candidate"] != weights.digest
    report = call(nights, candidate=refusal["candidate"][:10], by="Ada")
    assert report["champion"] == "v2"
    assert read_json(nights.registry.folder / "v2" / "decision.json")["outcome"] == "forced"


@pytest.mark.parametrize("by", [None, "", "  "])
def test_nobody_in_particular_forces_nothing(nights: Nights, by: str | None) -> None:
    before = nights.pointer
    with pytest.raises(ParameterError, match="say who"):
        call(nights, candidate="newest", by=by)
    assert nights.pointer == before
    assert nights.registry.versions() == ["v1"]


def test_candidates_that_are_not_there(nights: Nights) -> None:
    champion = nights.digest("first", BASE)
    for candidate in (champion[:12], "0" * 12, "", "second"):
        with pytest.raises(UnknownNameError, match="no refused candidate"):
            call(nights, candidate=candidate, by="Ada")
    with pytest.raises(ParameterError, match="exclude each other"):
        call(nights, candidate="newest", rollback=True, by="Ada")
    wanted = nights.digest("second", answers(1))
    found = nights.store.find("weights", "toy", "second")
    assert found is not None
    nights.store.path(found).rename(nights.request.store / "aside")
    with pytest.raises(StoreError, match="is gone"):
        call(nights, candidate=wanted[:12], by="Ada")
