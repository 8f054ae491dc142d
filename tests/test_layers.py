import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Feature
from tasks import layers
from tasks.conv_pool import conv_pool_by_lax


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


IMAGES = Feature("uint8", (4, 4, 1), low=0, high=255)


@pytest.mark.parametrize(
    ("x", "got", "expected"),
    [
        (np.zeros((2, 4, 5, 1), np.uint8), "uint8[2,4,5,1]", "uint8[*,4,4,1]"),
        (np.zeros((2, 4, 5, 1), np.float32), "float32[2,4,5,1]", "float32[*,4,4,1]"),
        (np.zeros((2, 4, 4), np.uint8), "uint8[2,4,4]", "uint8[*,4,4,1]"),
        (np.zeros((2, 4, 4, 1), np.float64), "float64[2,4,4,1]", "uint8[*,4,4,1]"),
        (np.zeros((2, 4, 4, 1), np.int32), "int32[2,4,4,1]", "uint8[*,4,4,1]"),
        (np.zeros((2, 4, 4, 1)).tolist(), "list", "uint8[*,4,4,1]"),
    ],
)
@pytest.mark.parametrize("chex_is_on", [True, False])
def test_a_broken_contract_says_model_got_and_expected(x: object, got: str, expected: str, chex_is_on: bool) -> None:
    if not chex_is_on:
        chex.disable_asserts()
    try:
        with pytest.raises(ContractError, match="model mine, input") as caught:
            layers.examples_as_float("mine", x, IMAGES)  # type: ignore[arg-type]
    finally:
        chex.enable_asserts()
    assert caught.value.facts["got"] == got
    assert caught.value.facts["expected"] == expected


def test_a_contract_leaves_nothing_in_the_program() -> None:
    x = jnp.zeros((2, 4, 4, 1), jnp.uint8)
    guarded = jax.make_jaxpr(lambda x: layers.examples_as_float("mine", x, IMAGES))(x)
    assert str(guarded) == str(jax.make_jaxpr(lambda x: jnp.asarray(x, jnp.float32) / 255)(x))


@pytest.mark.parametrize(("high", "expected"), [(None, 16 / 255), (255, 16 / 255), (16, 1.0)])
def test_uint8_is_scaled_to_one(high: float | None, expected: float) -> None:
    feature = Feature("uint8", (1,), low=0, high=high)
    x = layers.examples_as_float("mine", np.array([[16]], np.uint8), feature)
    assert x.dtype == jnp.float32
    np.testing.assert_allclose(x, [[expected]], rtol=1e-6)


def test_float32_for_raw_pixels_is_left_as_it_is() -> None:
    x = layers.examples_as_float("mine", np.array([[16]], np.float32), Feature("uint8", (1,), low=0, high=255))
    np.testing.assert_array_equal(x, [[16.0]])


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool", "int8"])
def test_other_raw_dtypes_become_float32(dtype: str) -> None:
    x = layers.examples_as_float("mine", jnp.asarray(np.ones((2, 1), dtype)), Feature(dtype, (1,)))
    assert x.dtype == jnp.float32
    np.testing.assert_array_equal(x, [[1.0], [1.0]])


def test_a_block_is_convolution_pooling_norm_and_relu() -> None:
    block = layers.ConvBlock(3, 4, rngs=nnx.Rngs(0))
    scale = jnp.array([1.0, -1.0, 2.0, 0.5])
    block.norm.scale = nnx.Param(scale)
    x = normal(0, 8, 5, 6, 3)
    flat = conv_pool_by_lax(x, block.kernel[...])
    expected = nnx.relu((flat - flat.mean((0, 1, 2))) / jnp.sqrt(flat.var((0, 1, 2)) + 1e-5) * scale)
    assert expected.shape == (8, 2, 3, 4)
    np.testing.assert_allclose(block(x), expected, rtol=1e-3, atol=1e-4)


def test_a_block_refuses_other_channels() -> None:
    block = layers.ConvBlock(3, 4, rngs=nnx.Rngs(0))
    with pytest.raises(ContractError, match="conv block, input"):
        block(jnp.zeros((1, 4, 4, 1)))
