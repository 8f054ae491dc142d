"""Blocks that models share: raw values as floats, and convolution, pooling, norm and ReLU.

A model is one file, `tasks/models/<name>.py`, with `build(features_in, classes, *, dropout, rngs)`; one that takes
`dtype` too can compute in bfloat16, with parameters, statistics and logits in float32. Each of its modules states what
it takes and gives, so that a mistake is named where it is made and not five layers later. The pattern, for a block of
your own:

    class Head(nnx.Module):
        def __init__(self, width: int, classes: int, *, rngs: nnx.Rngs) -> None:
            self.width, self.classes = width, classes
            self.dense = nnx.Linear(width, classes, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            array_contract("model mine, head", "x", x, (None, self.width), jnp.float32)
            logits = self.dense(x)
            array_contract("model mine, head", "logits", logits, (x.shape[0], self.classes), jnp.float32)
            return logits

Shapes and dtypes are known while JAX traces, so nothing of this is in the compiled step: it costs no time per batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike, DTypeLike

from datasets.schema import Feature
from tasks.contracts import array_contract, device_dtype
from tasks.conv_pool import conv_pool


def examples_as_float(model: str, x: ArrayLike, feature: Feature, compute: DTypeLike = jnp.float32) -> jax.Array:
    """States the input contract of a model and gives its examples as floats.

    Args:
        model: Name, for the message.
        x: Raw values [batch, *feature.shape] of the feature's dtype, or float32 made from them before.
        feature: What an example is.
        compute: Float dtype of what the model computes.

    Returns:
        [batch, *feature.shape] of dtype `compute`, made in float32. Raw uint8 is divided by the feature's `high`, else
        by 255, which gives 0 ... 1; other raw dtypes are converted, and float32 is left as it is.

    Raises:
        ContractError: Another rank, shape or dtype; says model, got and expected, also after `chex.disable_asserts()`.
    """
    made_before = getattr(x, "dtype", None) == jnp.float32
    dtype = jnp.float32 if made_before else device_dtype(feature.dtype)
    array_contract(f"model {model}, input", "x", x, (None, *feature.shape), dtype)
    values = jnp.asarray(x, jnp.float32)
    return (values / (feature.high or 255) if dtype == jnp.uint8 else values).astype(compute)


class ConvBlock(nnx.Module):
    """3x3 convolution, 2x2 max pooling, BatchNorm, ReLU: float [B, H, W, C] -> [B, H // 2, W // 2, K] of `dtype`.

    The kernel's first values are those of He et al. 2015 (https://arxiv.org/abs/1502.01852). There is no bias,
    because BatchNorm would subtract it.
    """

    def __init__(
        self, channels_in: int, channels: int, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> None:  # fmt: skip
        self.channels_in, self.channels, self.dtype = channels_in, channels, jnp.dtype(dtype)
        he_normal = nnx.initializers.he_normal()
        self.kernel = nnx.Param(he_normal(rngs.params(), (3, 3, channels_in, channels), jnp.float32))
        # A run of a few hundred steps would end with stale statistics under the customary 0.99.
        self.norm = nnx.BatchNorm(channels, momentum=0.9, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Features [B, H, W, C] -> [B, H // 2, W // 2, K]; moves the norm's statistics in train mode."""
        array_contract("conv block, input", "x", x, (None, None, None, self.channels_in), self.dtype)
        B, H, W, _ = x.shape
        # Pooled first, norm and ReLU have a quarter of the work.
        y = nnx.relu(self.norm(conv_pool(x, self.kernel[...].astype(self.dtype))))
        array_contract("conv block, output", "y", y, (B, H // 2, W // 2, self.channels), self.dtype)
        return y
