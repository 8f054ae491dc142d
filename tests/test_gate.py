"""The gate: limits in the dataset file, better beyond chance by any metric, falls in a class or a slice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from datasets.errors import ParameterError, UnknownNameError
from datasets.gate import Gate, metrics_of
from datasets.schema import Dataset, Feature
from tasks import gate as module
from tasks import regression
from tasks.gate import drops, limits, rule, verdict, versus
from tasks.predictor import Predictions


def no_latency() -> float:
    raise AssertionError("measured without a limit")


def said(labels: np.ndarray, answers: np.ndarray, strength: float | np.ndarray = 3.0) -> Predictions:
    """A model of three classes that answers so, and how sure it is."""
    logits = np.zeros((len(labels), 3), np.float32)
    logits[np.arange(len(labels)), answers] = strength
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return Predictions(labels, logits, -log_p[np.arange(len(labels)), labels])


# ---------------------------------------------------------------------------------------------------- the dataset file


def gated(gate: Gate, **changes: Any) -> Dataset:
    return toy.dataset(gate=gate, **changes)


@pytest.mark.parametrize(
    "values",
    [{"level": 0.0}, {"level": 0.7}, {"level": float("nan")}, {"minimum": {"accuracy": float("nan")}}, {"maximum": 3},
     {"max_class_drop": -0.1}, {"max_slice_drop": 2.0}, {"max_latency_ms": 0.0}, {"max_bytes": 0}, {"max_bytes": 1.5},
     {"minimum": {"accuracy": True}}],
)  # fmt: skip
def test_values_that_can_not_be_a_limit(values: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Gate(**values)


@pytest.mark.parametrize("gate", [Gate(metric="acuracy"), Gate(minimum={"top_5": 0.9}), Gate(maximum={"rmse": 1})])
def test_metrics_that_the_label_does_not_have(gate: Gate) -> None:
    with pytest.raises(UnknownNameError, match="metric of the gate"):
        gated(gate)


def test_limits_for_slices_need_slices() -> None:
    with pytest.raises(ParameterError, match="no slices"):
        gated(Gate(max_slice_drop=0.1))
    place = Feature("int32", classes=("a", "b"))
    made = gated(Gate(max_slice_drop=0.1), features={**toy.dataset().features, "place": place}, slices=("place",))
    assert made.gate.max_slice_drop == 0.1


def test_top_k_exists_where_there_are_more_classes() -> None:
    assert "top_3" not in metrics_of(3)
    assert "top_3" in metrics_of(4)


# -------------------------------------------------------------------------------------------------------------- limits


def test_limits_are_inclusive_and_say_what_was_found() -> None:
    gate = Gate(minimum={"accuracy": 0.9, "roc_auc": 0.8}, maximum={"loss": 0.5}, max_latency_ms=3.0, max_bytes=100)
    checks = limits(gate, {"accuracy": 0.9, "roc_auc": 0.7, "loss": 0.5}, 101, lambda: 2.5)
    assert checks == [
        {"what": "minimum accuracy", "limit": 0.9, "got": 0.9, "passed": True},
        {"what": "minimum roc_auc", "limit": 0.8, "got": 0.7, "passed": False},
        {"what": "maximum loss", "limit": 0.5, "got": 0.5, "passed": True},
        {"what": "latency of one example, ms", "limit": 3.0, "got": 2.5, "passed": True},
        {"what": "bytes of the weights", "limit": 100, "got": 101, "passed": False},
    ]


@pytest.mark.parametrize("metrics", [{}, {"accuracy": float("nan"), "loss": float("nan")}])
def test_what_is_unknown_keeps_no_limit(metrics: dict[str, float]) -> None:
    checks = limits(Gate(minimum={"accuracy": 0.0}, maximum={"loss": 1e9}), metrics, 1, no_latency)
    assert [check["passed"] for check in checks] == [False, False]


def test_without_limits_nothing_is_checked_or_measured() -> None:
    assert limits(Gate(), {}, 10**12, no_latency) == []


# --------------------------------------------------------------------------------------------------------------- falls

TRUTH = np.arange(30) % 3


def wrong_at(*examples: int) -> Predictions:
    answers = TRUTH.copy()
    answers[list(examples)] = (answers[list(examples)] + 1) % 3
    return said(TRUTH, answers)


def test_a_class_may_fall_as_far_as_the_limit_and_no_further() -> None:
    fallen, champion = wrong_at(0, 3, 1), wrong_at(2)  # two of ten in the first class, one in the second
    (check,) = drops(gated(Gate(max_class_drop=0.2)), fallen, champion, {})
    assert check == {
        "what": "fall of the recall of class circle", "limit": 0.2, "got": 0.2, "passed": True,
        "candidate_correct": 8, "champion_correct": 10, "examples": 10,
    }  # fmt: skip
    (check,) = drops(gated(Gate(max_class_drop=0.19)), fallen, champion, {})
    assert check["passed"] is False
    many = drops(gated(Gate(max_class_drop=0.05)), fallen, champion, {})
    assert [(check["what"][-6:], check["passed"]) for check in many] == [("circle", False), (" cross", False)]
    assert drops(gated(Gate()), fallen, champion, {}) == []


def test_a_slice_may_fall_as_far_as_the_limit() -> None:
    place = {**toy.dataset().features, "place": Feature("bool")}
    made = gated(Gate(max_slice_drop=0.1), features=place, slices=("place",))
    half = np.arange(30) < 15
    slices = {"place": {"here": half, "there": ~half, "nowhere": np.zeros(30, bool)}}
    (check,) = drops(made, wrong_at(0, 1, 2), wrong_at(20, 21, 22), slices)
    assert (check["what"], check["got"], check["passed"]) == ("fall in place here", 0.2, False)


def test_a_class_without_examples_can_not_fall() -> None:
    labels = np.zeros(5, int)
    found = drops(gated(Gate(max_class_drop=0.0)), said(labels, labels), said(labels, labels), {})
    assert [check["what"] for check in found] == ["fall of the recall of class circle"]


# ---------------------------------------------------------------------------------------------------------- comparison


def test_accuracy_is_compared_by_mcnemar() -> None:
    test = versus(Gate(), wrong_at(), wrong_at(0, 1, 2, 3, 4))
    assert (test["wins"], test["losses"], test["better"], test["equal"]) == (5, 0, True, False)
    assert test["p"] == pytest.approx(1 / 32)
    assert (test["candidate_correct"], test["champion_correct"], test["examples"]) == (30, 25, 30)
    assert versus(Gate(level=0.01), wrong_at(), wrong_at(0, 1, 2, 3, 4))["better"] is False
    assert "p = 0.031, level 0.05" in verdict(test)


@pytest.mark.parametrize("metric", ["accuracy", "loss", "roc_auc", "pr_auc", "ece", "top_2"])
def test_a_model_is_equal_to_itself(metric: str) -> None:
    test = versus(Gate(metric=metric), wrong_at(0, 4), wrong_at(0, 4))
    assert (test["better"], test["equal"]) == (False, True)
    json.dumps(test, allow_nan=False)


@pytest.mark.parametrize("metric", ["loss", "roc_auc", "pr_auc"])
def test_a_better_model_is_found_by_the_paired_bootstrap(metric: str) -> None:
    good, bad = sure(np.random.default_rng(1), 1.5), sure(np.random.default_rng(2), 0.5)
    forth, back = (versus(Gate(metric=metric), *pair) for pair in ((good, bad), (bad, good)))
    assert (forth["better"], back["better"]) == (True, False)
    assert forth["difference"] > 0 > back["difference"]
    low, high = forth["interval"]
    assert 0 < low < forth["difference"] < high
    assert back["interval"] == [pytest.approx(-high), pytest.approx(-low)]
    assert "95% interval" in verdict(forth)
    assert "not better" in verdict(back)


def sure(random: np.random.Generator, skill: float, examples: int = 300) -> Predictions:
    """Random logits with so much truth in them."""
    labels = np.arange(examples) % 3
    logits = random.normal(0, 1, (examples, 3)).astype(np.float32)
    logits[np.arange(examples), labels] += skill
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return Predictions(labels, logits, -log_p[np.arange(examples), labels])


def test_what_is_undefined_is_not_better() -> None:
    labels = np.zeros(20, int)  # one class only: nothing to rank
    test = versus(Gate(metric="roc_auc"), said(labels, labels), said(labels, labels + 1))
    assert (test["better"], test["equal"], test["interval"], test["difference"]) == (False, False, None, None)
    assert "undefined" in verdict(test)
    json.dumps(test, allow_nan=False)


def test_nan_is_never_better() -> None:
    sound = wrong_at(0, 1, 2)
    broken = Predictions(sound.labels, sound.logits, np.full(30, np.nan, np.float32))
    for pair in ((broken, sound), (sound, broken)):
        assert versus(Gate(metric="loss"), *pair)["better"] is False


@pytest.mark.parametrize("metric", ["loss", "roc_auc", "accuracy"])
def test_two_equal_models_are_promoted_in_at_most_one_night_of_twenty(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "draws_for", lambda examples, classes: 200)
    random = np.random.default_rng(0)
    nights = 300
    promoted = sum(
        versus(Gate(metric=metric), sure(random, 1.0, 150), sure(random, 1.0, 150))["better"] for _ in range(nights)
    )
    assert promoted <= 0.05 * nights


# -------------------------------------------------------------------------------------------------------- the record


def test_the_rule_in_words_and_numbers() -> None:
    assert rule(Gate()) == (
        "promoted if better in accuracy on the same test examples, where the exact one-sided McNemar test says so at a"
        " level of 0.05; a tie keeps the champion; limits: none are set"
    )
    said = rule(Gate(metric="loss", minimum={"accuracy": 0.9}, max_bytes=3))
    assert "paired bootstrap" in said
    assert said.endswith("limits: minimum, max_bytes")


# ------------------------------------------------------------------------------------------ labels that are numbers


def estimated(random: np.random.Generator, spread: float, examples: int = 150) -> Predictions:
    """Estimates that are off by so much."""
    truth = np.random.default_rng(9).normal(0, 5, examples)
    said = (truth + random.normal(0, spread, examples)).astype(np.float32)
    return Predictions(truth, said[:, None], np.square(truth - said).astype(np.float32))


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2"])
def test_the_smaller_error_is_better(metric: str) -> None:
    good, bad = estimated(np.random.default_rng(1), 1.0), estimated(np.random.default_rng(2), 2.0)
    forth, back = (versus(Gate(metric=metric), *pair, regression.measures) for pair in ((good, bad), (bad, good)))
    assert (forth["better"], back["better"]) == (True, False)
    assert forth["difference"] > 0 > back["difference"]
    same = versus(Gate(metric=metric), good, good, regression.measures)
    assert (same["better"], same["equal"]) == (False, True)
    json.dumps(forth, allow_nan=False)


def test_equal_estimates_are_promoted_in_at_most_one_night_of_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draws_for", lambda examples, classes: 200)
    random, nights, gate = np.random.default_rng(0), 300, Gate(metric="rmse")
    promoted = sum(
        versus(gate, estimated(random, 1.0), estimated(random, 1.0), regression.measures)["better"]
        for _ in range(nights)
    )
    assert promoted <= 0.05 * nights


def test_an_estimate_that_is_nan_is_never_better() -> None:
    sound = estimated(np.random.default_rng(1), 1.0)
    broken = Predictions(sound.labels, np.full_like(sound.logits, np.nan), np.full_like(sound.losses, np.nan))
    for pair in ((broken, sound), (sound, broken)):
        assert versus(Gate(metric="rmse"), *pair, regression.measures)["better"] is False


def test_the_error_in_a_slice_may_rise_by_a_share() -> None:
    half = np.arange(150) < 75
    good, bad = estimated(np.random.default_rng(1), 1.0), estimated(np.random.default_rng(1), 1.1)
    made = toy.dataset(
        features={"image": Feature("uint8", (9, 8, 1)), "label": Feature("float32"), "half": Feature("bool")},
        slices=("half",), gate=Gate(metric="rmse", max_slice_drop=0.05),
    )  # fmt: skip
    (first, second) = drops(made, bad, good, {"half": {"yes": half, "no": ~half}})
    assert (first["passed"], second["passed"]) == (False, False)
    assert first["got"] == pytest.approx(0.1, rel=1e-3)
    loose = replace(made, gate=Gate(metric="rmse", max_slice_drop=0.2))
    (worst,) = drops(loose, bad, good, {"half": {"yes": half, "no": ~half}})
    assert worst["passed"] is True
    perfect = Predictions(good.labels, good.labels[:, None], good.losses)
    (undefined, *_) = drops(loose, bad, perfect, {"half": {"yes": half}})
    assert (undefined["passed"], undefined["got"]) == (False, None)
