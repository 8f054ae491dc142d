"""A small convolutional network for images: two blocks of 32 and 64 channels, a dense layer of 128."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike, DTypeLike

from datasets.errors import ParameterError
from datasets.schema import Feature
from tasks.contracts import array_contract
from tasks.layers import ConvBlock, examples_as_float

CHANNELS = (32, 64)
HIDDEN = 128


class CNN(nnx.Module):
    """Two conv blocks, dense, ReLU, dropout, dense: raw images [B, H, W, C] -> logits, float32 [B, classes].

    Any height and width of at least 4; each block halves them and drops an odd last row or column.
    """

    def __init__(
        self, features_in: Feature, classes: int, *, dropout: float, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:  # fmt: skip
        self.features_in, self.classes, self.dtype = features_in, classes, jnp.dtype(dtype)
        H, W, C = features_in.shape
        self.first = ConvBlock(C, CHANNELS[0], dtype=dtype, rngs=rngs)
        self.second = ConvBlock(CHANNELS[0], CHANNELS[1], dtype=dtype, rngs=rngs)
        self.hidden = nnx.Linear((H // 4) * (W // 4) * CHANNELS[1], HIDDEN, dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, classes, dtype=dtype, rngs=rngs)

    def __call__(self, x: ArrayLike) -> jax.Array:
        """Raw images as they are in the records, or float32 made from them -> logits."""
        values = examples_as_float("cnn", x, self.features_in, self.dtype)
        B = values.shape[0]
        y = self.second(self.first(values)).reshape(B, -1)
        y = self.dropout(nnx.relu(self.hidden(y)))
        logits = self.head(y).astype(jnp.float32)
        array_contract("model cnn, output", "logits", logits, (B, self.classes), jnp.float32)
        return logits


def build(features_in: Feature, classes: int, *, dropout: float, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> CNN:
    """Makes a `cnn` for images of `features_in`; its weights and dropout come from `rngs`, and it computes in `dtype`.

    Raises:
        ParameterError: The feature isn't [height, width, channels] with height and width of at least 4.
    """
    if len(features_in.shape) != 3 or min(features_in.shape[:2]) < 4:
        raise ParameterError(
            "cnn takes images only", parameter="model", got=list(features_in.shape),
            expected="[height, width, channels], height and width of at least 4", cure="--model mlp",
        )  # fmt: skip
    return CNN(features_in, classes, dropout=dropout, dtype=dtype, rngs=rngs)
