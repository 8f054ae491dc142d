import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from datasets.errors import ContractError, ParameterError
from datasets.schema import Feature
from tasks.models import cnn

PIXELS = Feature("uint8", (28, 28, 1), low=0, high=255)


def build(feature: Feature = PIXELS, classes: int = 10, dropout: float = 0.0, seed: int = 0) -> cnn.CNN:
    return cnn.build(feature, classes, dropout=dropout, rngs=nnx.Rngs(seed))


def images(count: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)


@nnx.jit
def logits(model: cnn.CNN, x: np.ndarray) -> jax.Array:
    """Of one program a structure: called bare, a model compiles each of its operations by itself."""
    return model(x)


def test_its_parameters() -> None:
    model = nnx.eval_shape(build)
    shapes = [leaf.shape for leaf in jax.tree.leaves(nnx.as_pure(nnx.state(model, nnx.Param)))]
    kernels = [(3, 3, 1, 32), (3, 3, 32, 64), (7 * 7 * 64, 128), (128, 10)]
    assert sorted(shapes) == sorted([*kernels, (32,), (32,), (64,), (64,), (128,), (10,)])


@pytest.mark.parametrize("shape", [(32, 32, 3), (9, 7, 2), (4, 5, 1)])
def test_images_of_any_size(shape: tuple[int, ...]) -> None:
    x = jnp.ones((2, *shape), jnp.uint8)
    logits = nnx.eval_shape(lambda: build(Feature("uint8", shape), classes=3)(x))
    assert logits.shape == (2, 3)
    assert logits.dtype == jnp.float32


@pytest.mark.parametrize("shape", [(3, 28, 1), (28, 3, 1), (28, 28), (784,), ()])
def test_what_is_no_image_is_refused_before_any_work(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="images only") as caught:
        build(Feature("uint8", shape))
    assert caught.value.facts["got"] == list(shape)


def test_both_formulations_give_the_same_loss_gradient_and_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = images(8), np.arange(8)

    def outcome(backend: str):  # noqa: ANN202
        monkeypatch.setattr(jax, "default_backend", lambda: backend)

        @nnx.jit
        def forward_and_back(model: cnn.CNN):  # noqa: ANN202
            return nnx.value_and_grad(lambda m: optax.softmax_cross_entropy_with_integer_labels(m(x), labels).mean())(
                model
            )

        model = build()
        loss, gradient = forward_and_back(model)
        return loss, nnx.as_pure(gradient), nnx.as_pure(nnx.state(model, nnx.BatchStat))

    for ours, reference in zip(jax.tree.leaves(outcome("cpu")), jax.tree.leaves(outcome("gpu")), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-3, atol=1e-5)


def test_statistics_move_in_train_mode_only() -> None:
    model, x = build(), images()
    before = nnx.as_pure(nnx.state(model, nnx.BatchStat))
    model.eval()
    logits(model, x)
    chex.assert_trees_all_equal(nnx.as_pure(nnx.state(model, nnx.BatchStat)), before)
    model.train()
    logits(model, x)
    for after, was in zip(jax.tree.leaves(nnx.as_pure(nnx.state(model, nnx.BatchStat))), jax.tree.leaves(before),
                          strict=True):  # fmt: skip
        assert not np.array_equal(after, was)


def test_in_eval_mode_an_example_is_judged_alone() -> None:
    model, x = build(dropout=0.5), images()
    model.eval()
    np.testing.assert_allclose(logits(model, x)[:1], logits(model, x[:1]), rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_train_mode_only() -> None:
    model, plain, x = build(dropout=0.5), build(dropout=0.0), images()
    assert not np.array_equal(logits(model, x), logits(model, x))
    np.testing.assert_array_equal(logits(plain, x), logits(plain, x))
    model = build(dropout=0.5)
    model.eval()
    plain = build(dropout=0.0)
    plain.eval()
    np.testing.assert_array_equal(logits(model, x), logits(plain, x))


@pytest.mark.parametrize("chex_is_on", [True, False])
def test_a_wrong_batch_is_refused_while_tracing(chex_is_on: bool) -> None:
    if not chex_is_on:
        chex.disable_asserts()
    try:
        with pytest.raises(ContractError, match="model cnn, input") as caught:
            nnx.jit(lambda m, x: m(x))(build(), np.zeros((2, 28, 28, 3), np.uint8))
    finally:
        chex.enable_asserts()
    assert caught.value.facts["got"] == "uint8[2,28,28,3]"
    assert caught.value.facts["expected"] == "uint8[*,28,28,1]"


def test_a_head_of_another_width_breaks_the_output_contract() -> None:
    model = build()
    model.head = nnx.Linear(128, 9, rngs=nnx.Rngs(0))
    with pytest.raises(ContractError, match="model cnn, output"):
        logits(model, images())


@pytest.mark.slow
def test_it_learns() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(64) % 4
    x = rng.integers(0, 100, (64, 8, 8, 1), dtype=np.uint8)
    x[np.arange(64), labels * 2] += 100  # a bright row tells the class
    model = build(Feature("uint8", (8, 8, 1)), classes=4)
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model: cnn.CNN, optimizer: nnx.Optimizer) -> jax.Array:
        loss, gradient = nnx.value_and_grad(
            lambda m: optax.softmax_cross_entropy_with_integer_labels(m(x), labels).mean()
        )(model)
        optimizer.update(model, gradient)
        return loss

    losses = [float(step(model, optimizer)) for _ in range(20)]
    assert losses[-1] < 0.1 < 1.0 < losses[0]
    model.eval()
    assert (model(x).argmax(-1) == labels).all()


def test_in_bfloat16_everything_heavy_is_and_what_is_kept_is_not() -> None:
    model = cnn.build(Feature("uint8", (8, 8, 1)), 3, dropout=0.0, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    graph, state = nnx.split(model)
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model, (nnx.Param, nnx.BatchStat)))} == {
        jnp.dtype(jnp.float32)
    }
    text = str(jax.make_jaxpr(lambda state, x: nnx.merge(graph, state)(x))(state, np.zeros((2, 8, 8, 1), np.uint8)))
    dots = [line for line in text.splitlines() if "dot_general" in line]
    assert len(dots) >= 4
    assert all("bf16" in line.split("=")[0] for line in dots)
    out = logits(model, np.zeros((2, 8, 8, 1), np.uint8))
    assert out.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model, nnx.BatchStat))} == {jnp.dtype(jnp.float32)}
