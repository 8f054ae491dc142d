from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx
from step_cases import Tiny, batch, bits, loss_fn, make_step

from datasets.errors import NonFiniteError
from tasks.debug_checks import DebugStep, expect, watching_layers

CLASSES = (Tiny.__call__, nnx.Linear.__call__, nnx.BatchNorm.__call__)


def faulty_loss(model: Tiny, columns: Any) -> Any:
    """Divides by zero where x is 7, and expects no x as great as 9."""
    expect(columns["x"].max() < 9, "the greatest x is {x}", x=columns["x"].max())
    loss, aux = loss_fn(model, columns)
    return loss + 0 * (1 / (columns["x"][:, 1] - 7)).sum(), aux


def with_one(x: float) -> Any:
    columns = batch(0)
    columns["x"][3, 1] = x
    return columns


@pytest.fixture(scope="module")  # it takes seconds to compile
def checked() -> DebugStep:
    return DebugStep(make_step(watching_layers(loss_fn)))


@pytest.fixture(scope="module")
def faulty() -> DebugStep:
    return DebugStep(make_step(watching_layers(faulty_loss)))


def test_a_healthy_batch_gives_what_the_step_gives_and_nothing_is_donated(checked: DebugStep) -> None:
    plain = make_step()
    carry = checked.step.initial_carry()
    before = bits(carry)
    new, metrics = checked(carry, batch(0))
    expected, wanted = plain(plain.initial_carry(), batch(0))
    assert bits(carry) == before
    assert float(metrics["loss"]) == pytest.approx(float(wanted["loss"]), rel=1e-5)
    assert int(new.step) == int(expected.step) == 1
    assert (Tiny.__call__, nnx.Linear.__call__, nnx.BatchNorm.__call__) == CLASSES


def test_a_division_by_zero_is_named_with_its_line(faulty: DebugStep) -> None:
    with pytest.raises(NonFiniteError, match="a check of debug mode failed") as caught:
        faulty(faulty.step.initial_carry(), with_one(7))
    assert "division by zero" in str(caught.value.facts["check"])
    assert "test_debug_checks.py" in str(caught.value.facts["line"])
    assert "faulty_loss" in str(caught.value.facts["line"])


def test_the_layer_that_overflows_is_named(checked: DebugStep) -> None:
    columns = batch(0)
    columns["x"][:] = jnp.float32(3e38)
    with pytest.raises(NonFiniteError) as caught:
        checked(checked.step.initial_carry(), columns)
    assert "layer first gives" in str(caught.value.facts["check"])


def test_an_expectation_holds_in_debug_mode_only(faulty: DebugStep) -> None:
    plain = make_step(faulty_loss)
    _, metrics = plain(plain.initial_carry(), with_one(9))
    assert bool(metrics["applied"])
    with pytest.raises(NonFiniteError) as caught:
        faulty(faulty.step.initial_carry(), with_one(9))
    assert "the greatest x is 9" in str(caught.value.facts["check"])
