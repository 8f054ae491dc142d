"""A tiny training state whose every value follows from the step, and how two of them are compared: bit by bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


def state_at(step: int, *, width: int = 4) -> Any:
    params = {
        "kernel": jnp.arange(3.0 * width).reshape(3, width) / 7 + step,
        "bias": jnp.full(width, step, jnp.bfloat16),
    }
    return {
        "params": params,
        "opt": optax.adam(1e-3).init(params),
        "rng": {"dropout": jax.random.key(step), "none": None},
        "blocks": {0: jnp.int32(step), 1: jnp.zeros((0, 2))},
    }


def bits(tree: Any) -> list[tuple[str, Any, str, bytes]]:
    found = []
    for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]:
        words = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        found.append((jax.tree_util.keystr(path), value.shape, str(value.dtype), np.asarray(words).tobytes()))
    return found
