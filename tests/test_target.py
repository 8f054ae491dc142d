"""What is minimised: of classes and of a number, with shapes that can't broadcast."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from datasets.errors import ContractError
from datasets.recipe import Recipe
from tasks.losses import cross_entropy, example_squared_error
from tasks.target import OfClasses, OfNumber, target_of

OUTPUTS = jnp.array([[1.0], [2.0], [-1.0], [0.5]])
NUMBERS = jnp.array([1.5, 0.0, -1.0, 4.5])


def test_a_label_without_classes_is_a_number() -> None:
    assert isinstance(target_of(("a", "b")), OfClasses)
    assert isinstance(target_of(()), OfNumber)


def test_squared_and_absolute_errors_of_a_number() -> None:
    loss, beside = OfNumber().loss(OUTPUTS, NUMBERS, Recipe(), None)
    assert (float(loss), loss.shape) == ((0.25 + 4 + 0 + 16) / 4, ())
    assert float(beside["mae"]) == (0.5 + 2 + 0 + 4) / 4
    each = OfNumber().example_metrics(OUTPUTS, NUMBERS)
    np.testing.assert_array_equal(each["loss"], [0.25, 4, 0, 16])
    np.testing.assert_array_equal(each["mae"], [0.5, 2, 0, 4])
    np.testing.assert_array_equal(OfNumber().example_losses(OUTPUTS, NUMBERS), each["loss"])
    np.testing.assert_array_equal(OfNumber().answers(OUTPUTS)["prediction"], OUTPUTS[:, 0])


@pytest.mark.parametrize(
    ("outputs", "numbers", "says"),
    [
        (OUTPUTS[:, 0], NUMBERS, "outputs"), (jnp.zeros((4, 2)), NUMBERS, "outputs"),
        (OUTPUTS, NUMBERS[:, None], "numbers"), (OUTPUTS, NUMBERS[:3], "numbers"), (OUTPUTS, jnp.arange(4), "numbers"),
        (OUTPUTS.astype(int), NUMBERS, "outputs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("asserting", [True, False])
def test_shapes_that_would_broadcast_are_refused(outputs: Any, numbers: Any, says: str, *, asserting: bool) -> None:
    if not asserting:
        chex.disable_asserts()
    try:
        for function in (example_squared_error, OfNumber().example_metrics):
            with pytest.raises(ContractError) as caught:
                jax.jit(function)(outputs, numbers)
            assert caught.value.facts["field"] == says
    finally:
        chex.enable_asserts()


def test_classes_are_as_they_were() -> None:
    logits, labels = jax.random.normal(jax.random.key(0), (8, 3)), jnp.arange(8) % 3
    recipe, weights = Recipe(label_smoothing=0.1), np.array([1.0, 2.0, 3.0], np.float32)
    loss, beside = target_of(("a", "b", "c")).loss(logits, labels, recipe, weights)
    assert loss == cross_entropy(logits, labels, label_smoothing=0.1, mask=jnp.asarray(weights)[labels])
    assert beside["accuracy"] == (np.asarray(logits).argmax(1) == np.asarray(labels)).mean()
    answers = OfClasses().answers(logits)
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, rtol=1e-6)
    assert answers["logits"] is logits


def test_hubers_loss_is_the_squared_error_near_the_label_and_a_line_beyond() -> None:
    target, labels = target_of(()), jnp.zeros(4)
    outputs = jnp.array([[0.5], [-1.5], [2.0], [-100.0]])
    loss, beside = target.loss(outputs, labels, Recipe(huber=1.5), None)
    assert loss == pytest.approx(np.mean([0.25, 2.25, 2 * 1.5 * (2 - 0.75), 2 * 1.5 * (100 - 0.75)]))
    assert beside["mae"] == pytest.approx(26.0)
    plain, _ = target.loss(outputs, labels, Recipe(), None)
    assert plain == pytest.approx(np.mean([0.25, 2.25, 4.0, 10_000.0]))
    slopes = jax.grad(lambda x: target.loss(x, labels, Recipe(huber=1.5), None)[0])(outputs)[:, 0]
    np.testing.assert_allclose(slopes, np.array([1.0, -3.0, 3.0, -3.0]) / 4)
    np.testing.assert_array_equal(target.example_losses(outputs, labels), [0.25, 2.25, 4.0, 10_000.0])
