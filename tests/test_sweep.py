from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import promoted
import pytest
import recorded
import toy

from datasets.errors import NonFiniteError, ParameterError, TrainingError
from datasets.schema import Rows
from flows.sweep import sweep
from flows.train import candidate, train
from tasks.artifact import Artifact, Store
from tasks.one_program import Ranked, Ranking
from tasks.request import Request
from tasks.run_record import find_run, runs_of
from tasks.stage import Run
from tasks.summary import artifact_of
from tasks.sweep import SEEN, Sweep, interval_of_mean

GRID: tuple[dict[str, Any], ...] = ({"learning_rate": 1e-2}, {"learning_rate": 1e-5})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Request]:
    """The request that all members change, in the place of a dataset file; the grid is trained with two seeds."""
    request = recorded.request(tmp_path_factory.mktemp("store"), epochs=1, learning_rate=1e-3)
    patch = promoted.instead_of_a_file(request.dataset)
    with recorded.without_prefect():
        yield request
    patch.undo()


@pytest.fixture(scope="module")
def first(base: Request) -> Sweep:
    return swept(base)


def swept(request: Request, seeds: int = 2, train: Any = candidate) -> Sweep:
    made = Sweep(request, seeds, train, "sweep", toy.SOURCES)
    for changes in GRID:
        made.measure(changes)
    return made


def fits(made: Sweep) -> list[Artifact]:
    return [artifact_of(one.run, "fit") for row in made._trained for one in row]


def test_members_are_ordinary_trainings_that_share_what_is_before_fit(first: Sweep) -> None:
    made = first
    trained = [one for row in made._trained for one in row]
    states = [{outcome.name: outcome.state for outcome in one.run.outcomes} for one in trained]
    assert [state.pop("fit") for state in states] == ["ran"] * 4
    assert [state.pop("evaluate") for state in states] == ["ran"] * 4
    assert {*states[0].values()} == {"ran"}
    assert all({*state.values()} == {"cached"} for state in states[1:])
    assert len({artifact.digest for artifact in fits(made)}) == 4
    alone = Run(made.requests(GRID[1])[1], sources=toy.SOURCES)
    candidate(alone)
    assert artifact_of(alone, "fit") == fits(made)[3]
    assert {outcome.state for outcome in alone.outcomes} == {"cached"}


def test_a_sweep_that_was_killed_does_nothing_twice(base: Request, first: Sweep) -> None:
    done = []

    def train(run: Run) -> dict[str, Artifact]:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(run)
        return candidate(run)

    with pytest.raises(KeyboardInterrupt):
        swept(base, 3, train)
    again = swept(base, 3)
    assert [row["cached"] for row in again.rows] == [3, 2]  # its sixth training is new
    assert fits(again)[:5] == [artifact_of(run, "fit") for run in done]
    assert [row["scores"][:2] for row in again.rows] == [row["scores"] for row in first.rows]
    assert [row["cached"] for row in swept(base, 3).rows] == [3, 3]


def test_the_row_of_a_recipe_says_mean_and_interval(first: Sweep) -> None:
    made = first
    row = made.rows[0]
    facts = [one.run.store.facts(artifact_of(one.run, "evaluate")) for one in made._trained[0]]
    assert row["scores"] == [each["accuracy"] for each in facts]
    assert row["mean"] == pytest.approx(np.mean(row["scores"]))
    assert row["interval"] == interval_of_mean(row["scores"])
    assert [find_run(made._trained[0][0].run.store, name)["recipe"]["seed"] for name in row["runs"]] == [3, 4]
    assert made.measure(GRID[0]) == row["mean"]
    assert len(made.rows) == 2


def test_without_a_validation_split_the_first_seed_goes_to_the_gate(base: Request, first: Sweep) -> None:
    made = swept(base)
    made.rows[0]["mean"] = made.rows[1]["mean"] = 0.5  # of equals, the first
    for at, one in enumerate(made._trained[0]):
        one.score = 0.1 + at
    best, winner = made.winner()
    assert (best, winner.seed, made.split) == (0, 3, "test")
    assert made.to_json()["note"] == SEEN
    made.lower, made.rows[1]["mean"] = True, 0.4
    assert made.winner()[0] == 1


def test_with_a_validation_split_that_decides(tmp_path: Path) -> None:
    raw = tmp_path / "given"
    splits = {"train": Rows(0, 120), "val": Rows(120, 160), "test": Rows(160, 200)}
    dataset = toy.dataset(toy.write_raw(raw, toy.pictures()), splits=splits)
    patch = promoted.instead_of_a_file(dataset)
    with recorded.without_prefect():
        request = toy.request_for(tmp_path, dataset, raw, epochs=1, learning_rate=1e-2)
        made = Sweep(request, 1, candidate, "sweep", toy.SOURCES)
        made.measure({})
    patch.undo()
    assert made.split == "val"
    assert "test split had no say" in made.to_json()["note"]
    run = made._trained[0][0].run
    facts = run.store.facts(artifact_of(run, "choose"))
    assert made.rows[0]["scores"][0] == facts["accuracy"]
    assert facts["examples"] == 40
    made._trained[0].append(replace(made._trained[0][0], seed=4, score=1.5))
    assert made.winner()[1].seed == 4
    made.lower = True
    assert made.winner()[1].seed == 3


def test_a_recipe_that_diverges_is_a_row_and_no_winner(base: Request, first: Sweep) -> None:
    def train(run: Run) -> dict[str, Artifact]:
        if run.request.dataset.recipe.learning_rate == 1e-2 and run.request.dataset.recipe.seed == 4:
            raise NonFiniteError("the loss isn't finite")
        return candidate(run)

    made = swept(base, train=train)
    row = made.rows[0]
    assert (row["mean"], row["interval"], row["failed"]) == (None, None, {"4": "the loss isn't finite"})
    assert row["scores"][1] is None
    assert len(row["runs"]) == 1
    assert made.winner()[0] == 1
    made.rows.pop()
    with pytest.raises(TrainingError, match="no recipe"):
        made.winner()


class Fixed(Ranking):
    """Gives these rows to the members of a group, in the place of a program."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.groups = rows, []

    def __call__(self, requests: Any, sources: Any, done: Any) -> Ranked:
        recipes = [request.dataset.recipe for request in requests]
        assert [(one.learning_rate, one.seed) for one in recipes] == [(1e-2, 3), (1e-2, 4), (1e-5, 3), (1e-5, 4)]
        return Ranked(
            [{"seed": one.seed, **row} for one, row in zip(recipes, self.rows, strict=True)], 8.0, cached=False
        )


def ranked(request: Request, rows: list[dict[str, Any]], *, train: Any = candidate, confirm: bool = False) -> Sweep:
    made = Sweep(request, 2, train, "sweep", toy.SOURCES, Fixed(rows), confirm=confirm)
    made.measure_all(GRID)
    return made


def test_the_winner_of_a_ranking_is_an_ordinary_training(base: Request, first: Sweep) -> None:
    scores = [{"score": 0.25}, {"score": 0.5}, {"score": 0.5}, {"score": 0.75}]
    made = ranked(base, scores, train=lambda run: candidate(run))
    assert [(row["scores"], row["seconds"], row["together"]) for row in made.rows] == [
        ([0.25, 0.5], 4.0, True), ([0.5, 0.75], 4.0, True)
    ]  # fmt: skip
    best, winner = made.winner()
    assert (best, winner.seed) == (1, 3)  # without a validation split the first seed
    assert artifact_of(winner.run, "fit") == fits(first)[2]
    assert {outcome.state for outcome in winner.run.outcomes if outcome.name == "fit"} == {"cached"}
    assert made.to_json()["rows"] == made.rows
    made.split, made._trained[1] = "val", []
    assert made._chosen([0.5, 0.75]) == 1
    confirmed = ranked(base, scores, confirm=True)
    assert confirmed.winner()[0] in (0, 1)
    assert confirmed.rows[1] | {"seconds": 0} == first.rows[1] | {"seconds": 0, "cached": 2}


def test_a_member_that_failed_in_a_ranking_cant_win(base: Request) -> None:
    failed = [{"failed": "step 3: the loss isn't finite"}, {"score": 0.9}, {"score": 0.1}, {"score": 0.2}]
    made = ranked(base, failed)
    assert made.rows[0]["failed"] == {"3": "step 3: the loss isn't finite"}
    assert (made.rows[0]["mean"], made.rows[0]["scores"]) == (None, [None, 0.9])
    assert made.winner()[0] == 1


def test_a_winner_that_fails_by_itself_gives_way_to_the_next(base: Request) -> None:
    def train(run: Run) -> dict[str, Artifact]:
        if run.request.dataset.recipe.learning_rate == 1e-2:
            raise NonFiniteError("the loss isn't finite")
        return candidate(run)

    made = ranked(base, [{"score": score} for score in (0.9, 0.9, 0.1, 0.2)], train=train)
    best, winner = made.winner()
    assert (best, winner.run.request.dataset.recipe.learning_rate) == (1, 1e-5)
    assert made.rows[0]["failed"] == {"3": "the loss isn't finite"}


def test_what_cant_work_is_refused_before_anything_is_trained(base: Request) -> None:
    made = Sweep(base, 2, lambda run: pytest.fail("trained"), "sweep", toy.SOURCES)
    for changes in ({"learning_rate": -1.0}, {"batch_size": 100_000}, {"model": "nothing"}):
        with pytest.raises(Exception, match=r"learning_rate|batch|model"):
            made.requests(changes)
    with pytest.raises(ParameterError):
        Sweep(base, 0, candidate, "sweep")


def test_the_interval_is_students() -> None:
    assert interval_of_mean([1.0]) is None
    low, high = interval_of_mean([1.0, 2.0, 3.0]) or (0, 0)
    half = 4.302652729911275 / math.sqrt(3)  # t of 0.975 with 2 degrees of freedom
    assert (low, high) == pytest.approx((2 - half, 2 + half))


def test_the_flow_sends_the_winner_to_the_gate_and_train_finds_all_done(prefect_server: str, tmp_path: Path) -> None:
    request = recorded.request(tmp_path, epochs=1)
    patch = promoted.instead_of_a_file(request.dataset)
    store = tmp_path / "store"
    options: dict[str, Any] = {"store": str(store), "raw": str(tmp_path / "given")}
    same = {"model": "mlp", "epochs": 1, "batch_size": 16}
    try:
        same_way = {"seeds": 2, "recipe": same, "members": "one-by-one", **options}
        made: Any = sweep("toy", grid={"learning_rate": "1e-2"}, **same_way)
        again: Any = sweep("toy", grid={"learning_rate": "1e-2"}, **same_way)
        alone: Any = train("toy", seed=4, learning_rate=1e-2, **same, **options)
        one: Any = sweep(
            "toy", grid={"learning_rate": "1e-2,3e-3"}, seeds=2, recipe=same, members="together", **options
        )
    finally:
        patch.undo()
    assert (made["winner"]["changes"], made["winner"]["seed"]) == ({"learning_rate": 1e-2}, 3)
    assert (made["decision"]["promoted"], made["champion"]) == (True, "v1")
    assert [row["cached"] for row in made["rows"] + again["rows"]] == [0, 2]
    assert again["rows"][0]["scores"] == made["rows"][0]["scores"]
    assert {stage["name"] for stage in alone["stages"] if stage["state"] != "cached"} == {"promote"}
    assert len(runs_of(Store(store))) == 2 * (2 + 1) + 1 + 2
    assert [(group["members"], group["together"], group["state"]) for group in one["groups"]] == [(4, True, "ran")]
    assert {row["together"] for row in one["rows"]} == {True}
    assert find_run(Store(store), one["winner"]["run"])["recipe"]["seed"] == 3
    assert find_run(Store(store), made["run"])["decision"]["promoted"]
