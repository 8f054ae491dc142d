"""Blocks that models share: contracts stated with Chex, raw values as floats, convolution and pooling.

A self-validating block, to imitate in a model of your own (`tasks/models/<name>.py`, with a `build` like the others):

    class Head(nnx.Module):
        def __init__(self, width: int, classes: int, *, rngs: nnx.Rngs) -> None:
            self.width, self.classes = width, classes
            self.dense = nnx.Linear(width, classes, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            expect("head input", x, (None, self.width), "float32")
            logits = self.dense(x)
            return expect("head logits", logits, (x.shape[0], self.classes), "float32")

Shapes and dtypes are known while JAX traces, so the compiled step holds nothing of this: it costs no time per batch.
"""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Feature


def expect(what: str, x: Any, shape: tuple[int | None, ...], *dtypes: str) -> jax.Array:  # noqa: ANN401
    """Gives `x` back if it has the shape and one of the dtypes.

    Args:
        what: The model and the border, such as "cnn input"; named in the error.
        x: Array or tracer.
        shape: Size of each axis; None where any size will do.
        dtypes: NumPy names of the dtypes allowed.

    Raises:
        ContractError: Another rank, shape or dtype, or no array; also after `chex.disable_asserts()`.
    """
    got = getattr(x, "dtype", None)
    allowed = tuple(np.dtype(name) for name in dtypes)
    try:
        if got is not None:
            chex.assert_rank(x, len(shape))
            chex.assert_shape(x, shape)
            chex.assert_type(x, got if got in allowed else allowed[0])
    except AssertionError as error:
        raise _broken(what, x, shape, dtypes) from error
    # The plain check is for callers who switched Chex off, and for lists, which Chex would convert.
    fits = got in allowed and len(x.shape) == len(shape)
    if not fits or any(n not in (None, size) for n, size in zip(shape, x.shape, strict=True)):
        raise _broken(what, x, shape, dtypes)
    return x


def _broken(what: str, x: object, shape: tuple[int | None, ...], dtypes: tuple[str, ...]) -> ContractError:
    sizes = ["batch" if n is None and axis == 0 else "any" if n is None else str(n) for axis, n in enumerate(shape)]
    is_array = hasattr(x, "dtype")
    got = f"{x.dtype}[{', '.join(map(str, x.shape))}]" if is_array else type(x).__name__  # type: ignore[attr-defined]
    return ContractError(f"{what} breaks its contract", got=got, expected=f"{' or '.join(dtypes)}[{', '.join(sizes)}]")


def expect_examples(model: str, x: Any, feature: Feature) -> jax.Array:  # noqa: ANN401
    """States a model's input: a batch of raw values of `feature`, or of float32 made from them before.

    Returns:
        float32 [batch, *feature.shape]. Raw uint8 is scaled to 0 ... 1 by the feature's `high`, else by 255; other raw
        dtypes are converted, and float32 is left as it is.

    Raises:
        ContractError: Another shape or dtype.
    """
    raw = str(jax.dtypes.canonicalize_dtype(feature.dtype))
    x = expect(f"{model} input", x, (None, *feature.shape), *dict.fromkeys((raw, "float32")))
    if x.dtype == jnp.uint8:
        return x.astype(jnp.float32) / jnp.float32(feature.high or 255)
    return x.astype(jnp.float32)


def cpu_formulation() -> bool:
    """Whether convolution and pooling take the form that is fast on a CPU; the one place that decides it."""
    return jax.default_backend() == "cpu"


def conv_3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """3x3 convolution, stride 1, zero padding: [B, H, W, C] and [3, 3, C, K] -> [B, H, W, K]."""
    return conv_3x3_by_matmul(x, kernel) if cpu_formulation() else conv_3x3_by_lax(x, kernel)


def conv_3x3_by_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Lays the nine shifted images side by side (im2col) and multiplies once: XLA's fastest form on a CPU."""
    _, H, W, C = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, row : row + H, column : column + W] for row in range(3) for column in range(3)]
    return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(9 * C, -1)


def conv_3x3_by_lax(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's own convolution, which GPU and TPU libraries implement."""
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Greatest of each 2x2 square: [B, H, W, C] -> [B, H // 2, W // 2, C]; an odd last row or column is dropped."""
    return max_pool_2x2_by_reshape(x) if cpu_formulation() else max_pool_2x2_by_lax(x)


def max_pool_2x2_by_reshape(x: jax.Array) -> jax.Array:
    """A plain maximum over two axes; its gradient is many times cheaper on a CPU than that of a reduce-window."""
    B, H, W, C = x.shape
    even = x[:, : H // 2 * 2, : W // 2 * 2]
    return even.reshape(B, H // 2, 2, W // 2, 2, C).max(axis=(2, 4))


def max_pool_2x2_by_lax(x: jax.Array) -> jax.Array:
    """A reduce-window, as `nnx.max_pool` does it."""
    return nnx.max_pool(x, window_shape=(2, 2), strides=(2, 2))


class ConvBlock(nnx.Module):
    """3x3 convolution, BatchNorm, ReLU, 2x2 max pooling: float32 [B, H, W, C] -> [B, H // 2, W // 2, K].

    The kernel's first values are those of He et al. 2015 (https://arxiv.org/abs/1502.01852). There is no bias,
    because BatchNorm would subtract it.
    """

    def __init__(self, channels_in: int, channels: int, *, rngs: nnx.Rngs) -> None:
        self.channels_in, self.channels = channels_in, channels
        he_normal = nnx.initializers.he_normal()
        self.kernel = nnx.Param(he_normal(rngs.params(), (3, 3, channels_in, channels), jnp.float32))
        # A run of a few hundred steps would end with stale statistics under the customary 0.99.
        self.norm = nnx.BatchNorm(channels, momentum=0.9, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Features [B, H, W, C] -> [B, H // 2, W // 2, K]; moves the norm's statistics in train mode."""
        expect("conv block input", x, (None, None, None, self.channels_in), "float32")
        B, H, W, _ = x.shape
        # Pooling before the ReLU gives the same values (both are monotone) with a quarter of the work.
        y = nnx.relu(max_pool_2x2(self.norm(conv_3x3(x, self.kernel[...]))))
        return expect("conv block output", y, (B, H // 2, W // 2, self.channels), "float32")
