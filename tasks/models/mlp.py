"""A perceptron with one hidden layer: 784-128-10 on MNIST; takes examples of any fixed shape."""

from __future__ import annotations

import math

import jax
from flax import nnx
from jax.typing import ArrayLike

from datasets.schema import Feature
from tasks.layers import expect, expect_examples

HIDDEN = 128


class MLP(nnx.Module):
    """Flatten, dense, ReLU, dropout, dense: raw values [B, *shape] -> logits, float32 [B, classes]."""

    def __init__(self, features_in: Feature, classes: int, *, dropout: float, rngs: nnx.Rngs) -> None:
        self.features_in, self.classes = features_in, classes
        self.hidden = nnx.Linear(math.prod(features_in.shape), HIDDEN, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, classes, rngs=rngs)

    def __call__(self, x: ArrayLike) -> jax.Array:
        """Raw values as they are in the records, or float32 made from them -> logits."""
        x_float = expect_examples("mlp", x, self.features_in)
        B = x_float.shape[0]
        y = self.dropout(nnx.relu(self.hidden(x_float.reshape(B, -1))))
        return expect("mlp logits", self.head(y), (B, self.classes), "float32")


def build(features_in: Feature, classes: int, *, dropout: float, rngs: nnx.Rngs) -> MLP:
    """Makes an `mlp` for examples of `features_in`; its weights and dropout come from `rngs`."""
    return MLP(features_in, classes, dropout=dropout, rngs=rngs)
