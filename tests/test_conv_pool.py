from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tasks.conv_pool import conv_pool, conv_pool_by_corners, conv_pool_by_lax

Operation = Callable[[jax.Array, jax.Array], jax.Array]


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@partial(jax.jit, static_argnums=0)
def outcome(operation: Operation, x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, ...]:
    """Value, and gradients of image and kernel; one program, because compiling takes most of the time here."""
    weights = normal(2, *jax.eval_shape(operation, x, kernel).shape)
    return operation(x, kernel), *jax.grad(lambda x, k: (operation(x, k) * weights).sum(), (0, 1))(x, kernel)


@pytest.mark.parametrize("size", [(6, 4), (7, 5), (2, 3)])
@pytest.mark.parametrize("channels", [1, 5])  # few are laid out in another way than many
def test_both_forms_agree_in_value_and_gradients(size: tuple[int, int], channels: int) -> None:
    x, kernel = normal(0, 2, *size, channels), normal(1, 3, 3, channels, 4)
    ours, reference = outcome(conv_pool_by_corners, x, kernel), outcome(conv_pool_by_lax, x, kernel)
    assert ours[0].shape == (2, size[0] // 2, size[1] // 2, 4)
    for mine, other in zip(ours, reference, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operation", [conv_pool_by_corners, conv_pool_by_lax])
def test_it_is_what_flax_makes_of_a_convolution_and_a_pooling(operation: Operation) -> None:
    x, kernel = normal(0, 2, 6, 5, 3), normal(1, 3, 3, 3, 4)
    flax_conv = nnx.Conv(3, 4, (3, 3), use_bias=False, rngs=nnx.Rngs(0))
    flax_conv.kernel[...] = kernel
    expected = nnx.max_pool(flax_conv(x), window_shape=(2, 2), strides=(2, 2))
    np.testing.assert_allclose(operation(x, kernel), expected, rtol=1e-4, atol=1e-4)


def test_equal_maxima_share_the_gradient() -> None:
    def derived(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y[:, :4, :4].reshape(2, 2, 2, 2, 2, 3).max(axis=(2, 4))

    # Few different whole numbers, so that many squares have two, three or four maxima, equal to the last bit.
    x, kernel = jnp.round(normal(0, 2, 5, 5, 2)), jnp.zeros((3, 3, 2, 3)).at[1, 1].set(jnp.round(normal(1, 2, 3)))
    ours, reference = outcome(conv_pool_by_corners, x, kernel), outcome(derived, x, kernel)
    for mine, other in zip(ours, reference, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    squares = np.asarray(conv_pool_by_lax(x, kernel))[:, :, None, :, None]
    full = np.asarray(jnp.einsum("bhwc,ck->bhwk", x, kernel[1, 1]))[:, :4, :4].reshape(2, 2, 2, 2, 2, 3)
    assert {1, 2, 4} <= set(np.unique((full == squares).sum(axis=(2, 4))))


def test_bfloat16_stays_bfloat16() -> None:
    x, kernel = normal(0, 2, 4, 4, 5).astype(jnp.bfloat16), normal(1, 3, 3, 5, 4).astype(jnp.bfloat16)
    assert {part.dtype for part in outcome(conv_pool_by_corners, x, kernel)} == {jnp.dtype(jnp.bfloat16)}


def test_the_backend_chooses_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    x, kernel = normal(0, 1, 4, 4, 1), normal(1, 3, 3, 1, 2)

    def primitives(backend: str) -> str:
        monkeypatch.setattr(jax, "default_backend", lambda: backend)
        return str(jax.make_jaxpr(lambda x, k: conv_pool(x, k))(x, kernel))

    on_cpu, on_gpu = primitives("cpu"), primitives("gpu")
    assert "dot_general" in on_cpu
    assert "conv_general_dilated" not in on_cpu
    assert "reduce_window" not in on_cpu
    assert "conv_general_dilated" in on_gpu
    assert "reduce_window" in on_gpu
