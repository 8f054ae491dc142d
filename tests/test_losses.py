from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from datasets.errors import ContractError
from tasks.losses import cross_entropy

BROKEN = [
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros((32, 1), jnp.int32)),
    lambda: cross_entropy(jnp.zeros((1, 10)), jnp.zeros(32, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(1, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros((32, 10), jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(32, jnp.float32)),
    lambda: cross_entropy(jnp.zeros((32, 10), jnp.int32), jnp.zeros(32, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(32, jnp.int32), mask=jnp.ones((32, 1))),
]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("chexed", [True, False])
def test_shapes_that_would_broadcast_are_refused(broken: Any, chexed: bool) -> None:
    if not chexed:
        chex.disable_asserts()
    try:
        with pytest.raises(ContractError):
            broken()
    finally:
        chex.enable_asserts()


def logits_and_labels() -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(jax.random.key(0), (6, 4)), jnp.array([0, 1, 2, 3, 1, 0])


def test_cross_entropy_is_that_of_optax() -> None:
    logits, labels = logits_and_labels()
    plain = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    np.testing.assert_allclose(cross_entropy(logits, labels), plain, rtol=1e-6)
    smooth = optax.softmax_cross_entropy(logits, optax.smooth_labels(jax.nn.one_hot(labels, 4), 0.1)).mean()
    np.testing.assert_allclose(cross_entropy(logits, labels, label_smoothing=0.1), smooth, rtol=1e-6)


def test_masked_rows_count_nothing_whatever_they_hold() -> None:
    logits, labels = logits_and_labels()
    mask = jnp.array([True, True, True, False, False, True])
    rows = np.flatnonzero(mask)
    spoiled, wrong = logits.at[3:5].set(jnp.nan), labels.at[3].set(99)
    np.testing.assert_allclose(
        cross_entropy(spoiled, wrong, mask=mask), cross_entropy(logits[rows], labels[rows]), rtol=1e-6
    )


@pytest.mark.parametrize("label", [4, 5, -1, -4])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_label_out_of_range_gives_nan(label: int, smoothing: float) -> None:
    logits, labels = logits_and_labels()
    assert jnp.isnan(cross_entropy(logits, labels.at[2].set(label), label_smoothing=smoothing))
    assert jnp.isfinite(cross_entropy(logits, labels, label_smoothing=smoothing))
