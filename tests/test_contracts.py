from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest

from datasets.errors import ContractError
from datasets.schema import Feature
from tasks.contracts import array_contract, batch_contract, equal_prefix, image_contract, surfacing


@pytest.fixture
def no_chex() -> Iterator[None]:
    chex.disable_asserts()
    yield
    chex.enable_asserts()


BROKEN = [
    lambda: array_contract("model", "x", jnp.zeros((4, 1)), (4,)),
    lambda: array_contract("model", "x", jnp.zeros((4, 3)), (None, 2)),
    lambda: array_contract("model", "x", jnp.zeros(4, jnp.bfloat16), (4,), jnp.float32),
    lambda: array_contract("model", "x", [1.0, 2.0], (2,)),
    lambda: array_contract("model", "x", 1.0, ()),
    lambda: image_contract("model", jnp.zeros((8, 28, 28)), (28, 28, 1)),
    lambda: image_contract("model", jnp.zeros((8, 28, 28, 1), jnp.uint8), (28, 28, 1)),
    lambda: equal_prefix("step", {"a": jnp.zeros((4, 2)), "b": jnp.zeros(3)}),
    lambda: equal_prefix("step", {"a": jnp.zeros(4), "b": jnp.zeros(())}),
    lambda: batch_contract("step", {"a": jnp.zeros(4)}, {"a": Feature("float32"), "b": Feature("float32")}, 4),
    lambda: batch_contract("step", {"a": jnp.zeros(4)}, {"a": Feature("int32")}, 4),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_contract_raises(broken: Any) -> None:
    with pytest.raises(ContractError):
        broken()


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.usefixtures("no_chex")
def test_a_broken_contract_raises_without_chex(broken: Any) -> None:
    with pytest.raises(ContractError):
        broken()


def test_a_chex_failure_in_a_users_function_becomes_a_contract_error() -> None:
    def loss(x: jax.Array) -> jax.Array:
        chex.assert_rank(x, 2)
        return x.sum()

    with pytest.raises(ContractError) as caught:
        jax.jit(surfacing("my loss", loss))(jnp.zeros(3))
    assert "rank" in caught.value.facts["chex"]


def test_contracts_leave_the_program_as_it_is() -> None:
    def bare(x: jax.Array) -> jax.Array:
        return x * 2

    def stated(x: jax.Array) -> jax.Array:
        image_contract("model", x, (2, 2, 1))
        return x * 2

    x = jnp.zeros((3, 2, 2, 1))
    assert str(jax.make_jaxpr(bare)(x)) == str(jax.make_jaxpr(stated)(x))
