"""A module as its structure and nested dicts of plain arrays: what a step carries, donates and gives back.

Random keys are carried as their uint32 words. A typed key has a Python object around its array, and with one among its
arguments or results JAX calls a compiled program through Python, which costs 0.1 to 0.2 ms a call.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

M = TypeVar("M", bound=nnx.Pytree)


class PlainState(Generic[M]):
    """The structure of a module, for making it from arrays.

    Args:
        module: It is only read.

    Attributes:
        arrays: Its state, as `plain` gives it.
    """

    def __init__(self, module: M) -> None:
        self._graph, state = nnx.split(module)
        pure = _pure(state)
        self._impls = [str(jax.random.key_impl(leaf)) if _is_key(leaf) else None for leaf in jax.tree.leaves(pure)]
        self.arrays = _words(pure)

    def module(self, arrays: dict[str, Any]) -> M:
        """The module with these arrays, in its mode; shares no Variable with another."""
        leaves, structure = jax.tree.flatten(arrays)
        typed = [
            leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl)
            for leaf, impl in zip(leaves, self._impls, strict=True)
        ]
        return nnx.merge(self._graph, structure.unflatten(typed))


def plain(state: Any) -> dict[str, Any]:  # noqa: ANN401
    """A state as nested dicts of arrays.

    Arrays instead of Variables: merge would reuse the Variables of its input, and an update would reach into the old.
    """
    return _words(_pure(state))


def _pure(state: Any) -> dict[str, Any]:  # noqa: ANN401
    return nnx.to_pure_dict(nnx.as_pure(state))


def _words(pure: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, pure)


def _is_key(leaf: Any) -> bool:  # noqa: ANN401
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
