from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import promoted
import pytest
import recorded
import toy

from datasets.schema import Recipe
from flows.train import candidate, ready
from tasks.artifact import Artifact
from tasks.durable import read_json
from tasks.request import Request
from tasks.stage import Run, key_of
from tasks.together import MEMBERS, _rows, fitting, pilot, together

RATES = (1e-2, 1e-2, 1e3)  # the last one diverges


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Request]:
    request = recorded.request(tmp_path_factory.mktemp("store"), epochs=2)
    patch = promoted.instead_of_a_file(request.dataset)
    with recorded.without_prefect():
        yield with_members(request, RATES)
    patch.undo()


def with_members(request: Request, rates: Sequence[float]) -> Request:
    recipe = request.dataset.recipe
    members = tuple(replace(recipe, learning_rate=rate, seed=seed) for seed, rate in enumerate(rates))
    return replace(request, dataset=replace(request.dataset, recipe=members[0]), members=members)


@pytest.fixture(scope="module")
def made(base: Request) -> tuple[Run, Artifact, dict[str, Artifact]]:
    run = Run(base, sources=toy.SOURCES)
    inputs = ready(run)
    return run, together(run, **inputs), inputs


def rows(run: Run, artifact: Artifact) -> list[dict[str, Any]]:
    return read_json(run.store.path(artifact) / MEMBERS)


def test_members_score_what_trainings_of_their_own_do(made: Any) -> None:
    run, artifact, _ = made
    found = rows(run, artifact)
    assert [(row["learning_rate"], row["seed"]) for row in found] == [(rate, seed) for seed, rate in enumerate(RATES)]
    for row, recipe in zip(found[:1], run.request.members, strict=False):
        alone = Run(
            replace(run.request, dataset=replace(run.request.dataset, recipe=recipe), members=()), sources=toy.SOURCES
        )
        score = run.store.facts(candidate(alone)["evaluation"])["accuracy"]
        assert row["score"] == pytest.approx(score, abs=0.021)  # of 50 examples one may fall to the other side
    programs = run.outcomes[-1].notes["programs"]
    assert [(one["members"], one["used"], one["budget"]) for one in programs] == [(3, 1, 1)]
    assert not (run.store.root / "checkpoints" / "toy" / artifact.key).exists()


def test_what_failed_has_no_score_and_says_why(base: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.together.metric_of", lambda dataset, found: 0.5)
    well = SimpleNamespace(logits=np.zeros((2, 3)), losses=np.ones(2))
    ill = SimpleNamespace(logits=np.zeros((2, 3)), losses=np.array([1.0, np.inf]))
    members: Any = SimpleNamespace(
        job=SimpleNamespace(request=base), step=SimpleNamespace(members=base.members), run=lambda: None,
        failures=lambda carry: {1: "step 2: the loss isn't finite"},
        predictions=lambda carry, split: iter([well, well, ill]),
    )  # fmt: skip
    first, second, third = _rows(members)
    assert first == {"learning_rate": RATES[0], "seed": 0, "score": 0.5}
    assert second == {"learning_rate": RATES[1], "seed": 1, "failed": "step 2: the loss isn't finite"}
    assert third["failed"].startswith("the model gives a logit or a loss")
    assert "score" not in third


def test_its_key_is_of_the_members_and_of_no_ones_rate_alone(made: Any) -> None:
    run, artifact, inputs = made

    def key(stage: Any, request: Request) -> str:
        return key_of(stage.components(Run(request, sources=toy.SOURCES), inputs))

    base = run.request
    assert key(together, base) == artifact.key
    assert key(together, replace(base, memory=1 << 30)) == artifact.key
    other = with_members(base, (1e-2, 1e-2, 1e2))
    assert key(together, other) != artifact.key
    assert key(pilot, other) == key(pilot, base)  # as many of them, with as many rates
    for changed in (with_members(base, RATES[:2]), replace(base, memory=5)):
        assert key(pilot, changed) != key(pilot, base)
    recipe = replace(base.dataset.recipe, batch_size=8)
    wider = replace(base, dataset=replace(base.dataset, recipe=recipe))
    assert key(together, wider) != artifact.key


def test_what_doesnt_fit_memory_is_split_and_said(caplog: pytest.LogCaptureFixture) -> None:
    built: list[int] = []

    class Program:
        def __init__(self, members: Sequence[Recipe]) -> None:
            built.append(len(members))
            self.members, self.memory = members, 10 * len(members) + 5

    members = [Recipe(seed=seed) for seed in range(7)]

    def parts(limit: int) -> list[list[int]]:
        built.clear()
        caplog.clear()
        with caplog.at_level("INFO", logger="gristmill"):
            return [[one.seed for one in step.members] for step in fitting(members, limit, Program)]  # type: ignore

    assert parts(75) == [[0, 1, 2, 3, 4, 5, 6]]
    assert (built, caplog.text) == ([7], "")
    assert parts(45) == [[0, 1, 2, 3], [4, 5, 6]]
    assert "split in 2" in caplog.text
    assert parts(1) == [[seed] for seed in range(7)]
    assert "one member alone" in caplog.text
    assert parts(38)[:2] == [[0, 1], [2, 3]]  # four of seven are still too many


def test_split_members_come_to_the_same(made: Any) -> None:
    run, artifact, inputs = made
    one = next(iter(run.outcomes[-1].notes["programs"]))
    split = Run(replace(run.request, memory=int(one["memory"] * 0.8)), sources=toy.SOURCES)
    split.request = replace(split.request, members=run.request.members[:2])
    other = together(split, **inputs)
    whole = rows(run, artifact)[:2]
    assert np.allclose([row["score"] for row in rows(split, other)], [row["score"] for row in whole], atol=0.021)


def test_the_pilot_tells_what_it_measured(made: Any) -> None:
    run, _, inputs = made
    facts = run.store.facts(pilot(run, **inputs))
    assert (facts["members"], facts["programs"], facts["steps"]) == (3, 1, 18)
    assert facts["together"] == (facts["together_s"] < facts["one_by_one_s"])
    assert min(facts["step_ms"], facts["single_step_ms"], facts["compile_s"], facts["single_compile_s"]) > 0
