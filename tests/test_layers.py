import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Feature
from tasks import layers


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("size", [(28, 28), (7, 5), (1, 1)])
@pytest.mark.parametrize("channels", [1, 3, 5])  # few are laid out in another way than many
def test_both_convolutions_agree_in_value_and_gradient(size: tuple[int, int], channels: int) -> None:
    x, kernel, weights = normal(0, 2, *size, channels), normal(1, 3, 3, channels, 4), normal(2, 2, *size, 4)

    def outcome(convolve):  # noqa: ANN001, ANN202
        return convolve(x, kernel), *jax.grad(lambda x, k: (convolve(x, k) * weights).sum(), (0, 1))(x, kernel)

    for ours, reference in zip(outcome(layers.conv_3x3_by_matmul), outcome(layers.conv_3x3_by_lax), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-4)


def test_the_convolution_is_that_of_flax() -> None:
    x, kernel = normal(0, 2, 6, 5, 3), normal(1, 3, 3, 3, 4)
    flax_conv = nnx.Conv(3, 4, (3, 3), use_bias=False, rngs=nnx.Rngs(0))
    flax_conv.kernel[...] = kernel
    np.testing.assert_allclose(layers.conv_3x3_by_matmul(x, kernel), flax_conv(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(4, 6), (7, 5)])
def test_both_poolings_agree_in_value_and_gradient(size: tuple[int, int]) -> None:
    x = normal(0, 2, *size, 3)
    weights = normal(1, 2, size[0] // 2, size[1] // 2, 3)
    ours, reference = (
        (pool(x), jax.grad(lambda x, pool=pool: (pool(x) * weights).sum())(x))
        for pool in (layers.max_pool_2x2_by_reshape, layers.max_pool_2x2_by_lax)
    )
    np.testing.assert_array_equal(ours[0], reference[0])
    np.testing.assert_array_equal(ours[1], reference[1])
    assert ours[0].shape == weights.shape


def test_equal_maxima_share_the_gradient() -> None:
    def plain(x: jax.Array) -> jax.Array:
        return x[:, :4, :4].reshape(2, 2, 2, 2, 2, 3).max(axis=(2, 4))

    x = jnp.round(normal(0, 2, 5, 5, 3))  # few different values, so that many squares have two, three or four maxima
    weights = normal(1, 2, 2, 2, 3)
    ours, derived = (
        jax.grad(lambda x, pool=pool: (pool(x) * weights).sum())(x) for pool in (layers.max_pool_2x2_by_reshape, plain)
    )
    np.testing.assert_allclose(ours, derived, rtol=1e-6)
    assert len(np.unique(np.count_nonzero(np.asarray(ours)[:, :4, :4].reshape(2, 2, 2, 2, 2, 3), axis=(2, 4)))) > 2


def test_the_backend_chooses_the_formulation(monkeypatch: pytest.MonkeyPatch) -> None:
    x, kernel = normal(0, 1, 4, 4, 1), normal(1, 3, 3, 1, 2)

    def primitives(backend: str) -> str:
        monkeypatch.setattr(jax, "default_backend", lambda: backend)
        return str(jax.make_jaxpr(lambda x, k: layers.max_pool_2x2(layers.conv_3x3(x, k)))(x, kernel))

    on_cpu, on_gpu = primitives("cpu"), primitives("gpu")
    assert "dot_general" in on_cpu
    assert "conv_general_dilated" not in on_cpu
    assert "reduce_window" not in on_cpu
    assert "conv_general_dilated" in on_gpu
    assert "reduce_window" in on_gpu


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
    flat = nnx.max_pool(layers.conv_3x3_by_lax(x, block.kernel[...]), (2, 2), (2, 2))
    expected = nnx.relu((flat - flat.mean((0, 1, 2))) / jnp.sqrt(flat.var((0, 1, 2)) + 1e-5) * scale)
    assert expected.shape == (8, 2, 3, 4)
    np.testing.assert_allclose(block(x), expected, rtol=1e-3, atol=1e-4)


def test_a_block_refuses_other_channels() -> None:
    block = layers.ConvBlock(3, 4, rngs=nnx.Rngs(0))
    with pytest.raises(ContractError, match="conv block, input"):
        block(jnp.zeros((1, 4, 4, 1)))
