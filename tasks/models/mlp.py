"""A perceptron with one hidden layer: 784-128-10 on MNIST; takes examples of any fixed shape."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike, DTypeLike

from datasets.schema import Feature
from tasks.contracts import array_contract
from tasks.layers import examples_as_float

HIDDEN = 128


class MLP(nnx.Module):
    """Flatten, dense, ReLU, dropout, dense: raw values [B, *shape] -> logits, float32 [B, classes]."""

    def __init__(
        self, features_in: Feature, classes: int, *, dropout: float, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:  # fmt: skip
        self.features_in, self.classes, self.dtype = features_in, classes, jnp.dtype(dtype)
        self.hidden = nnx.Linear(math.prod(features_in.shape), HIDDEN, dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, classes, dtype=dtype, rngs=rngs)

    def __call__(self, x: ArrayLike) -> jax.Array:
        """Raw values as they are in the records, or float32 made from them -> logits."""
        values = examples_as_float("mlp", x, self.features_in, self.dtype)
        B = values.shape[0]
        y = self.dropout(nnx.relu(self.hidden(values.reshape(B, -1))))
        logits = self.head(y).astype(jnp.float32)
        array_contract("model mlp, output", "logits", logits, (B, self.classes), jnp.float32)
        return logits


def build(features_in: Feature, classes: int, *, dropout: float, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> MLP:
    """Makes an `mlp` for examples of `features_in`; `rngs` decides weights and dropout, and it computes in `dtype`."""
    return MLP(features_in, classes, dropout=dropout, dtype=dtype, rngs=rngs)
