from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy

from datasets.errors import ContractError
from tasks.objective import Objective, class_weights, policy

DATASET = toy.dataset()
BATCH = {name: column[:8] for name, column in toy.pictures().items()}


def objective(weights: np.ndarray | None = None, **recipe: Any) -> Objective:
    options: dict[str, Any] = {"model": "mlp", "batch_size": 8, **recipe}
    return Objective(replace(DATASET, recipe=replace(DATASET.recipe, **options)), weights)


def losses(made: Objective) -> np.ndarray:
    return np.asarray(made.example_metrics(made.model, BATCH)["loss"])


def test_the_loss_is_the_mean_over_the_examples() -> None:
    made = objective()
    loss, metrics = made.loss(made.model, BATCH)
    np.testing.assert_allclose(loss, losses(made).mean(), rtol=1e-6)
    np.testing.assert_allclose(
        metrics["accuracy"], np.asarray(made.example_metrics(made.model, BATCH)["accuracy"]).mean()
    )
    assert made.parameters == 72 * 128 + 128 + 128 * 3 + 3


def test_class_weights_weigh_the_examples() -> None:
    weights = np.array([1.0, 4.0, 0.5], np.float32)
    made = objective(weights)
    each = weights[BATCH["label"]]
    np.testing.assert_allclose(
        made.loss(made.model, BATCH)[0], (losses(made) * each).sum() / each.sum(), rtol=1e-5
    )  # fmt: skip
    plain = objective()
    assert abs(float(made.loss(made.model, BATCH)[0]) - float(plain.loss(plain.model, BATCH)[0])) > 1e-4


def test_label_smoothing_pulls_the_target_to_the_middle() -> None:
    sharp, smooth = objective(), objective(label_smoothing=0.3)
    logits = np.asarray(sharp.model(BATCH["image"]), np.float64)  # type: ignore[operator]
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    target = 0.7 * np.eye(3)[BATCH["label"]] + 0.1
    np.testing.assert_allclose(smooth.loss(smooth.model, BATCH)[0], -(target * log_p).sum(1).mean(), rtol=1e-5)
    np.testing.assert_array_equal(losses(smooth), losses(sharp))  # an evaluation uses the plain target


def test_bfloat16_changes_the_arithmetic_and_not_the_state() -> None:
    single, half = objective(), objective(precision="bfloat16")
    dtypes = {x.dtype for x in jax.tree.leaves(half.train_step(4).abstract_carry().state["model"])}
    assert jnp.dtype(jnp.bfloat16) not in dtypes
    got = [float(made.loss(made.model, BATCH)[0]) for made in (single, half)]
    assert got[0] != got[1]
    assert got[0] == pytest.approx(got[1], rel=0.02)


def test_balanced_weights_give_every_class_the_same_say() -> None:
    labels = np.array([0] * 6 + [1] * 3 + [2] * 1)
    recipe = replace(DATASET.recipe, class_weights="balanced")
    weights = class_weights(recipe, lambda: labels, 3)
    assert weights is not None
    np.testing.assert_allclose(np.bincount(labels) * weights, [10 / 3] * 3, rtol=1e-6)
    np.testing.assert_allclose(weights[labels].mean(), 1, rtol=1e-6)
    with pytest.raises(ContractError, match="can't be balanced") as caught:
        class_weights(recipe, lambda: labels, 4)
    assert caught.value.facts["got"] == "class 3"


def test_weights_that_are_given_are_taken_as_they_are() -> None:
    def never() -> np.ndarray:
        raise AssertionError("the labels aren't needed")

    given = class_weights(replace(DATASET.recipe, class_weights=(1.0, 2.0, 0.5)), never, 3)
    assert given is not None
    assert (given.tolist(), given.dtype) == ([1.0, 2.0, 0.5], np.float32)
    assert class_weights(DATASET.recipe, never, 3) is None


def test_the_policy_of_the_recipe() -> None:
    assert not policy(DATASET.recipe).skip
    made = objective(on_nonfinite="skip", max_skips=7, max_skips_in_a_row=2)
    step = made.train_step(4)
    assert step.policy == policy(made.dataset.recipe)
    assert (step.policy.skip, step.policy.max_total, step.policy.max_consecutive) == (True, 7, 2)


def test_the_table_counts_parameters_and_flops() -> None:
    text = objective().table()
    assert "9,731" in text
    assert "hidden" in text
    assert "flops" in text
    assert "uint8[8,9,8,1]" in text
