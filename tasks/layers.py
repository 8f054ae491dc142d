"""Blocks that models share: raw values as floats, convolution and pooling in the form that the backend runs best.

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

FEW_CHANNELS = 4


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


def cpu_formulation() -> bool:
    """Whether convolution and pooling take the form that is fast on a CPU; the one place that decides it."""
    return jax.default_backend() == "cpu"


def conv_3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """3x3 convolution, stride 1, zero padding: [B, H, W, C] and [3, 3, C, K] -> [B, H, W, K]."""
    return conv_3x3_by_matmul(x, kernel) if cpu_formulation() else conv_3x3_by_lax(x, kernel)


def conv_3x3_by_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Lays the nine shifted images side by side (im2col) and multiplies once: XLA's fastest form on idle CPU cores."""
    B, H, W, C = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, row : row + H, column : column + W] for row in range(3) for column in range(3)]
    weights = kernel.reshape(9 * C, -1)
    if C > FEW_CHANNELS:
        return jnp.concatenate(shifted, axis=-1) @ weights
    # Side by side, a few channels would be copied number by number; one below the other, whole images are.
    planes = jnp.stack([image[..., channel].reshape(-1) for image in shifted for channel in range(C)])
    return (planes.T @ weights).reshape(B, H, W, -1)


def conv_3x3_by_lax(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's own convolution, which GPU and TPU libraries implement."""
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Greatest of each 2x2 square: [B, H, W, C] -> [B, H // 2, W // 2, C]; an odd last row or column is dropped."""
    return max_pool_2x2_by_reshape(x) if cpu_formulation() else max_pool_2x2_by_lax(x)


@jax.custom_vjp
def max_pool_2x2_by_reshape(x: jax.Array) -> jax.Array:
    """A plain maximum over two axes, with a gradient in one pass over the image.

    Equal maxima of a square share its gradient evenly, as they do in `jnp.max`. The gradient that JAX derives is the
    same number for number; XLA's code for it takes several times as long on a CPU.
    """
    B, H, W, C = x.shape
    even = x[:, : H // 2 * 2, : W // 2 * 2]
    return even.reshape(B, H // 2, 2, W // 2, 2, C).max(axis=(2, 4))


def _pool_forward(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    pooled = max_pool_2x2_by_reshape(x)
    return pooled, (x, pooled)


def _pool_backward(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    x, pooled = kept
    (_, H, W, _), (_, rows, columns, _) = x.shape, pooled.shape

    def corner(row: int, column: int) -> jax.Array:
        return x[:, row : 2 * rows : 2, column : 2 * columns : 2]

    def spread(squares: jax.Array) -> jax.Array:
        wide = jnp.repeat(jnp.repeat(squares, 2, axis=1), 2, axis=2)
        return jnp.pad(wide, ((0, 0), (0, H - 2 * rows), (0, W - 2 * columns), (0, 0)))

    equals = sum((corner(row, column) == pooled).astype(x.dtype) for row in range(2) for column in range(2))
    return (jnp.where(x == spread(pooled), spread(gradient / equals), 0),)


max_pool_2x2_by_reshape.defvjp(_pool_forward, _pool_backward)


def max_pool_2x2_by_lax(x: jax.Array) -> jax.Array:
    """A reduce-window, as `nnx.max_pool` does it."""
    return nnx.max_pool(x, window_shape=(2, 2), strides=(2, 2))


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
        y = nnx.relu(self.norm(max_pool_2x2(conv_3x3(x, self.kernel[...].astype(self.dtype)))))
        array_contract("conv block, output", "y", y, (B, H // 2, W // 2, self.channels), self.dtype)
        return y
