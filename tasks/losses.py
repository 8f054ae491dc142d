"""Losses whose shapes can't broadcast, and that give NaN for a label that doesn't exist."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tasks.contracts import array_contract, kind_contract


def cross_entropy(
    logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0, mask: jax.Array | None = None
) -> jax.Array:
    """Mean softmax cross-entropy, with shapes that can't broadcast.

    A label outside 0 ... classes - 1 gives NaN for every class count and sign, so that the firewall stops; the usual
    gather takes -1 for the last class.

    Args:
        logits: float [batch, classes].
        labels: int [batch].
        label_smoothing: Share of the target that is spread evenly over all classes, 0 <= share < 1.
        mask: bool or float [batch], the weight of each example; rows of weight 0 may hold anything. All weights 0
            gives NaN.

    Returns:
        float32 [].

    Raises:
        ContractError: A shape, or the kind of a dtype, is another.
    """
    per_example = example_cross_entropy(logits, labels, label_smoothing=label_smoothing)
    if mask is None:
        return per_example.mean()
    array_contract("cross_entropy", "mask", mask, per_example.shape)
    weight = mask.astype(jnp.float32)
    return jnp.sum(jnp.where(weight > 0, per_example, 0.0) * weight) / jnp.sum(weight)


def example_cross_entropy(logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0) -> jax.Array:
    """Softmax cross-entropy of each example, float32 [batch]; see `cross_entropy`."""
    where = "cross_entropy"
    array_contract(where, "logits", logits, (None, None))
    array_contract(where, "labels", labels, (logits.shape[0],))
    kind_contract(where, "logits", logits, jnp.floating, "a float dtype")
    kind_contract(where, "labels", labels, jnp.integer, "an integer dtype")
    classes = logits.shape[1]
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    known = (labels >= 0) & (labels < classes)
    # The gather itself makes the NaN, and only for a bad label, so that jax_debug_nans has nothing to say otherwise.
    index = jnp.where(known, labels, classes)[:, None]
    target = jnp.take_along_axis(log_p, index, axis=1, mode="fill", fill_value=jnp.nan)[:, 0]
    if not label_smoothing:
        return -target
    return -((1.0 - label_smoothing) * target + label_smoothing * log_p.mean(axis=1))


def example_squared_error(outputs: jax.Array, numbers: jax.Array) -> jax.Array:
    """Squared error of each example, float32 [batch], with shapes that can't broadcast.

    Args:
        outputs: float [batch, 1], of a model with one output.
        numbers: float [batch], the truth.

    Raises:
        ContractError: A shape, or the kind of a dtype, is another: [batch] against [batch, 1] would be every pair.
    """
    where = "squared_error"
    estimates = single_output(where, outputs)
    array_contract(where, "numbers", numbers, estimates.shape)
    kind_contract(where, "numbers", numbers, jnp.floating, "a float dtype")
    return jnp.square(estimates - numbers.astype(jnp.float32))


def single_output(where: str, outputs: jax.Array) -> jax.Array:
    """What a model with one output says of each example: float [batch, 1] -> float32 [batch].

    Raises:
        ContractError: There are more outputs, or none.
    """
    array_contract(where, "outputs", outputs, (None, 1))
    kind_contract(where, "outputs", outputs, jnp.floating, "a float dtype")
    return outputs[:, 0].astype(jnp.float32)
