from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx
from step_cases import Tiny, batch, bits, loss_fn, make_step

from datasets.errors import NonFiniteError
from tasks.debug_checks import DebugStep, expect, watching_layers


def dividing_loss(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    return loss + 0 * (1 / (columns["x"][:, 1] - 7)).sum(), aux


def expecting_loss(model: Tiny, columns: Any) -> Any:
    expect(columns["x"].max() < 5, "the greatest x is {x}", x=columns["x"].max())
    return loss_fn(model, columns)


def sevens() -> Any:
    columns = batch(0)
    columns["x"][3, 1] = 7
    return columns


def debug(loss: Any = loss_fn) -> DebugStep:
    return DebugStep(make_step(watching_layers(loss)))


def test_a_healthy_batch_gives_what_the_step_gives_and_nothing_is_donated() -> None:
    classes = (Tiny.__call__, nnx.Linear.__call__, nnx.BatchNorm.__call__)
    plain, checked = make_step(), debug()
    carry = checked.step.initial_carry()
    before = bits(carry)
    new, metrics = checked(carry, batch(0))
    expected, wanted = plain(plain.initial_carry(), batch(0))
    assert bits(carry) == before
    assert float(metrics["loss"]) == pytest.approx(float(wanted["loss"]), rel=1e-5)
    assert int(new.step) == int(expected.step) == 1
    assert (Tiny.__call__, nnx.Linear.__call__, nnx.BatchNorm.__call__) == classes


def test_a_division_by_zero_is_named_with_its_line() -> None:
    step = debug(dividing_loss)
    with pytest.raises(NonFiniteError, match="a check of debug mode failed") as caught:
        step(step.step.initial_carry(), sevens())
    assert "division by zero" in str(caught.value.facts["check"])
    assert "test_debug_checks.py" in str(caught.value.facts["line"])
    assert "dividing_loss" in str(caught.value.facts["line"])


def test_the_layer_that_overflows_is_named() -> None:
    step = debug()
    columns = batch(0)
    columns["x"][:] = jnp.float32(3e38)
    with pytest.raises(NonFiniteError) as caught:
        step(step.step.initial_carry(), columns)
    assert "layer first gives" in str(caught.value.facts["check"])


def test_an_expectation_holds_in_debug_mode_only() -> None:
    plain = make_step(expecting_loss)
    _, metrics = plain(plain.initial_carry(), sevens())
    assert bool(metrics["applied"])
    step = debug(expecting_loss)
    with pytest.raises(NonFiniteError) as caught:
        step(step.step.initial_carry(), sevens())
    assert "the greatest x is 7" in str(caught.value.facts["check"])
