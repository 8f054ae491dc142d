from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tasks.plain_state import PlainState, plain


class Noisy(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(3, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.dropout(self.linear(x))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_module_comes_back_and_goes_on_with_its_random_numbers(impl: str) -> None:
    module = Noisy(nnx.Rngs(jax.random.key(7, impl=impl)))
    split = PlainState(module)
    assert not [x for x in jax.tree.leaves(split.arrays) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    again, x = split.module(split.arrays), jnp.ones((4, 3))
    for _ in range(2):
        np.testing.assert_array_equal(module(x), again(x))
    words = jax.tree.map(np.asarray, plain(nnx.state(again)))
    assert jax.tree.map(np.array_equal, words, jax.tree.map(np.asarray, plain(nnx.state(module))))
    key = again.dropout.rngs.key[...]  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert str(jax.random.key_impl(key)) == impl


def test_two_modules_of_one_state_share_nothing() -> None:
    split = PlainState(Noisy(nnx.Rngs(0)))
    first, second = split.module(split.arrays), split.module(split.arrays)
    first.linear.kernel[...] = jnp.zeros((3, 2))
    assert float(jnp.abs(second.linear.kernel[...]).sum()) > 0


def test_a_program_that_carries_a_key_is_called_without_python() -> None:
    split = PlainState(Noisy(nnx.Rngs(0)))

    def step(arrays: dict, x: jax.Array) -> tuple[dict, jax.Array]:
        module = split.module(arrays)
        out = module(x)
        return plain(nnx.state(module)), out

    moved, out = jax.jit(step)(split.arrays, jnp.ones((4, 3)))
    assert jax.tree.structure(moved) == jax.tree.structure(split.arrays)
    assert all(type(leaf) is type(out) for leaf in jax.tree.leaves(moved))  # no wrapper around an array
