from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import toy

from datasets.errors import ParameterError, UnknownNameError
from tasks.artifact import Artifact, Store
from tasks.durable import write_json
from tasks.one_program import Ranked, Ranking, groups
from tasks.request import Request
from tasks.stage import Outcome, Run, Stage
from tasks.sweep_member import Member
from tasks.together import MEMBERS


def requests(tmp_path: Any, seeds: int = 2, **changes: Any) -> list[Request]:
    made = toy.request_for(tmp_path, toy.dataset())
    recipes = [replace(made.dataset.recipe, seed=seed, **changes) for seed in range(seeds)]
    return [replace(made, dataset=replace(made.dataset, recipe=recipe)) for recipe in recipes]


def rank(ranking: Ranking, members: list[Request]) -> Ranked | None:
    return ranking(members, toy.SOURCES, {})


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the two stages give, in their place; and the members that `together` got."""
    given: dict[str, Any] = {"facts": {}, "rows": [], "got": ()}

    def take(self: Member, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        store = Store(self.request.store)

        def fill(draft: Any) -> None:
            draft.facts = given["facts"]
            write_json(draft.folder / MEMBERS, given["rows"])

        made = store.commit(stage.name, "toy", f"{stage.name}-{len(self.outcomes)}", fill, {})
        given["got"] = self.request.members
        self.outcomes.append(Outcome(stage.name, made.key, "cached", 4.0, made, {"programs": []}))
        return made

    monkeypatch.setattr(Member, "take", take)
    return given


def ready(run: Run) -> dict[str, Artifact]:
    return {}


def test_recipes_that_differ_in_rate_and_seed_only_are_one_group(tmp_path: Any) -> None:
    tried: list[dict[str, Any]] = [
        {"batch_size": 8}, {"learning_rate": 1.0}, {"batch_size": 8, "learning_rate": 2.0}, {"ema": 0.9}, {}
    ]  # fmt: skip
    asked: list[Any] = [({"at": at}, requests(tmp_path, **changes)) for at, changes in enumerate(tried)]
    found = groups(asked)
    assert [[changes["at"] for changes, _ in group] for group in found] == [[0, 2], [1, 4], [3]]


def test_members_are_ranked_as_asked(tmp_path: Any, stages: dict[str, Any]) -> None:
    members = requests(tmp_path)
    stages["rows"] = [{"score": 0.5}, {"score": 0.75}]
    ranking = Ranking(ready, "together", memory=99)
    ranked = rank(ranking, members)
    assert ranked is not None
    assert ranked.part(1, 1) == Ranked([{"score": 0.75}], 2.0, cached=True)
    assert stages["got"] == tuple(member.dataset.recipe for member in members)
    assert [(group["members"], group["together"], group["why"]) for group in ranking.groups] == [(2, True, "as asked")]


@pytest.mark.parametrize("faster", [True, False])
def test_a_pilot_decides_and_says_why(
    tmp_path: Any, stages: dict[str, Any], faster: bool, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    stages["facts"] = {"members": 2, "steps": 5, "step_ms": 2.0, "single_step_ms": 1.5, "together_s": 3.0,
                       "one_by_one_s": 4.0, "together": faster}  # fmt: skip
    ranking = Ranking(ready)
    with caplog.at_level("INFO", logger="gristmill"):
        ranked = rank(ranking, requests(tmp_path))
    assert (ranked is not None) == faster
    assert ranking.groups[0]["together"] == faster
    assert "a step of all takes 2.00 ms" in ranking.groups[0]["why"]
    assert ranking.groups[0]["why"] in caplog.text


@pytest.mark.parametrize(
    ("way", "seeds", "changes", "why"),
    [("one-by-one", 2, {}, "as asked"), ("together", 1, {}, "only one"), ("pilot", 2, {"early_stopping": 2}, "early")],
)
def test_what_isnt_one_program_is_said(tmp_path: Any, way: str, seeds: int, changes: Any, why: str) -> None:
    def never(run: Run) -> dict[str, Artifact]:
        raise AssertionError

    ranking = Ranking(never, way)
    assert rank(ranking, requests(tmp_path, seeds, **changes)) is None
    assert why in ranking.groups[0]["why"]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="together"):
        Ranking(ready, "togehter")
    with pytest.raises(ParameterError, match="memory"):
        Ranking(ready, "pilot", 0)
