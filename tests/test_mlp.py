import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Feature
from tasks.models import mlp

PIXELS = Feature("uint8", (28, 28, 1), low=0, high=255)


def build(feature: Feature = PIXELS, classes: int = 10, dropout: float = 0.0, seed: int = 0) -> mlp.MLP:
    return mlp.build(feature, classes, dropout=dropout, rngs=nnx.Rngs(seed))


def images(count: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)


def test_it_is_784_128_10() -> None:
    sizes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree.leaves_with_path(
        nnx.as_pure(nnx.state(build(), nnx.Param)))}  # fmt: skip
    assert sorted(sizes.values()) == [(10,), (128,), (128, 10), (784, 128)]


def test_logits_are_those_of_the_formula() -> None:
    model, x = build(), images()
    weights = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    hidden, head = weights["hidden"], weights["head"]
    y = np.maximum(x.reshape(4, -1) / 255 @ hidden["kernel"] + hidden["bias"], 0)
    logits = model(jnp.asarray(x))
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, y @ head["kernel"] + head["bias"], atol=1e-5)


@pytest.mark.parametrize(
    "feature", [Feature("float32", (30,)), Feature("uint8", (8, 8)), Feature("float32", ()), Feature("int16", (2, 3))]
)
def test_examples_of_any_fixed_shape(feature: Feature) -> None:
    x = jnp.ones((3, *feature.shape), feature.dtype)
    logits = nnx.eval_shape(lambda: build(feature, classes=2)(x))
    assert logits.shape == (3, 2)
    assert logits.dtype == jnp.float32


def test_the_seed_decides_the_weights() -> None:
    x = images()
    np.testing.assert_array_equal(build(seed=1)(x), build(seed=1)(x))
    assert not np.array_equal(build(seed=1)(x), build(seed=2)(x))


def test_dropout_acts_in_train_mode_only() -> None:
    model, x = build(dropout=0.5), images()
    assert not np.array_equal(model(x), model(x))
    model.eval()
    np.testing.assert_array_equal(model(x), model(x))
    np.testing.assert_allclose(model(x), build(dropout=0.0)(x), atol=1e-6)


@pytest.mark.parametrize(
    ("x", "got"),
    [
        (np.zeros((4, 28, 28), np.uint8), "uint8[4,28,28]"),
        (np.zeros((4, 28, 29, 1), np.uint8), "uint8[4,28,29,1]"),
        (np.zeros((4, 28, 28, 1), np.int32), "int32[4,28,28,1]"),
    ],
)
@pytest.mark.parametrize("chex_is_on", [True, False])
def test_a_wrong_batch_is_refused_while_tracing(x: np.ndarray, got: str, chex_is_on: bool) -> None:
    if not chex_is_on:
        chex.disable_asserts()
    try:
        with pytest.raises(ContractError, match="model mlp, input") as caught:
            nnx.jit(lambda m, x: m(x))(build(), x)
    finally:
        chex.enable_asserts()
    assert caught.value.facts["got"] == got
    assert caught.value.facts["expected"] == "uint8[*,28,28,1]"


def test_a_head_of_another_width_breaks_the_output_contract() -> None:
    model = build()
    model.head = nnx.Linear(128, 9, rngs=nnx.Rngs(0))
    with pytest.raises(ContractError, match="model mlp, output") as caught:
        model(images())
    assert caught.value.facts["got"] == "float32[4,9]"
    assert caught.value.facts["expected"] == "float32[4,10]"
