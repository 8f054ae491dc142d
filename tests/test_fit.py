from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import toy

from datasets.schema import Feature
from tasks.fit import fit, model_code
from tasks.request import Request
from tasks.stage import Run


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return toy.request_for(tmp_path, toy.dataset(), model="mlp")


def parts(request: Request, **changes: Any) -> Any:
    """The key's part of parameters for a dataset that differs a little."""
    return toy.key_parts(fit, replace(request, dataset=replace(request.dataset, **changes)))


@pytest.mark.parametrize(
    "change",
    [{"seed": 9}, {"epochs": 3}, {"batch_size": 17}, {"learning_rate": 0.5}, {"optimizer": "sgd"}, {"dropout": 0.1},
     {"schedule": "constant"}, {"weight_decay": 0.0}, {"clip_norm": 1.0}, {"label_smoothing": 0.1}, {"warmup": 0.0}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_value_of_the_recipe_counts(request_: Request, change: dict[str, Any]) -> None:
    assert parts(request_, recipe=replace(request_.dataset.recipe, **change)) != parts(request_)


def test_what_is_kept_beside_the_weights_counts(request_: Request) -> None:
    image, label = request_.dataset.features["image"], request_.dataset.features["label"]
    scaled = {"image": replace(image, high=9), "label": label}
    renamed = {"image": image, "label": replace(label, classes=("ring", "cross", "circle"))}
    keys = [parts(request_), parts(request_, features=scaled), parts(request_, features=renamed)]
    assert keys[0] != keys[1]
    assert keys[0] != keys[2]


def test_what_decides_no_bit_does_not_count(request_: Request) -> None:
    here = parts(request_)
    assert toy.key_parts(fit, replace(request_, checkpoint_every=1)) == here
    assert parts(request_, about="other words", splits={**cast(Mapping[str, Any], request_.dataset.splits)}) == here
    assert fit.advisory == {"report", "plan"}


def test_the_code_of_the_model_counts(request_: Request) -> None:
    assert model_code(request_) == ("tasks.models.mlp:build",)
    cnn = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, model="cnn")))
    codes = [fit.components(Run(r, sources=toy.SOURCES), {})["code"] for r in (request_, cnn)]
    assert "tasks.models.mlp" in str(codes[0])
    assert "tasks.models.cnn" not in str(codes[0])
    assert "tasks.models.cnn" in str(codes[1])


def test_a_feature_more_counts(request_: Request) -> None:
    more = {**request_.dataset.features, "user": Feature("int32")}
    assert parts(request_, features=more) != parts(request_)


# ------------------------------------------------------------------------------------------------- tasks/benchmarks/fit


def test_the_benchmark_measures_what_its_goals_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.benchmarks import fit as benchmark

    monkeypatch.delenv("GRISTMILL_PEERS", raising=False)
    found = benchmark.run(1, {"mlp": (16, 6, 1, "<= 1.10")})
    assert [(row.against, row.goal) for row in found] == [("bare jax.jit", "<= 1.10"), ("ours", ">= 2")]
    assert all(row.value > 0 and row.ratio and row.ratio > 0 for row in found)


def test_a_peer_that_is_not_there_is_said_to_be_missing() -> None:
    from tasks.benchmarks.fit import report

    pairs = {"bare jax.jit": [(1.0, 1.0), (2.0, 1.0)], "nnx.jit as in tutorials": [(1.0, 3.0), (2.0, 8.0)]}
    rows = report("cnn", 128, 10, pairs, "<= 1.02")
    assert [row.ratio for row in rows] == [1.5, 3.5, None]
    assert [row.value for row in rows[:2]] == [150, 550]
    assert "not installed" in rows[2].unit
    rows = report("cnn", 128, 10, {**pairs, "PyTorch": [(1.0, 2.0), (2.0, 4.0)]}, "<= 1.02")
    assert (rows[2].ratio, rows[2].goal) == (0.5, "<= 1")


def test_both_of_a_pair_take_turns_at_being_first_and_the_first_round_does_not_count() -> None:
    from tasks.benchmarks.fit import pairs_of

    order: list[str] = []

    def loop(name: str) -> float:
        order.append(name)
        return len(order) + (100 if name == "theirs" else 0)

    assert pairs_of(lambda: loop("ours"), lambda: loop("theirs"), 2) == [(3, 104), (6, 105)]
    assert order == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
