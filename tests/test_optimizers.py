from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import Feature, Recipe
from tasks.models import cnn
from tasks.optimizers import (
    OPTIMIZERS,
    SCHEDULES,
    averaged,
    build_optimizer,
    is_kernel,
    learning_rate_at,
    learning_rates,
    updates_of,
)


def rates(total_steps: int, **recipe: float | str) -> np.ndarray:
    return rates_of(Recipe(learning_rate=0.1, **recipe), total_steps)  # type: ignore[arg-type]


def rates_of(recipe: Recipe, total_steps: int) -> np.ndarray:
    """Before each step and after the last, by one program."""
    return np.asarray(jax.jit(jax.vmap(learning_rate_at(recipe, total_steps)))(jnp.arange(total_steps + 1)))


def update_of(
    optimizer: optax.GradientTransformation, gradient: dict, state: Any, parameters: dict
) -> tuple[dict, Any]:
    update, state = optimizer.update(gradient, state, parameters)
    return cast(dict, update), state


def first_update(recipe: Recipe, parameters: dict, gradient: dict) -> dict:
    optimizer = build_optimizer(recipe, 10)
    return update_of(optimizer, gradient, optimizer.init(parameters), parameters)[0]


def test_constant_rises_then_stays() -> None:
    got = rates(100, schedule="constant", warmup=0.2)
    np.testing.assert_allclose(got[[0, 10, 20, 99]], [0, 0.05, 0.1, 0.1], rtol=1e-5)


def test_cosine_rises_then_falls_to_zero() -> None:
    got = rates(100, schedule="cosine", warmup=0.2)
    np.testing.assert_allclose(got[[0, 10, 20, 60, 100]], [0, 0.05, 0.1, 0.05, 0], rtol=1e-5, atol=1e-8)
    assert 0 < got[99] < 1e-4
    assert got.argmax() == 20


def test_no_warmup_starts_at_the_peak() -> None:
    for schedule in ("constant", "cosine"):
        np.testing.assert_allclose(rates(100, schedule=schedule, warmup=0.0)[0], 0.1, rtol=1e-6)


def test_one_cycle_has_its_own_rise() -> None:
    got = rates(100, schedule="one-cycle", warmup=0.9)
    np.testing.assert_allclose(got[[0, 15, 30, 100]], [0.004, 0.052, 0.1, 0.1 / 250_000], rtol=1e-4)
    assert got.argmax() == 30


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_short_run_learns_at_finite_rates(schedule: str) -> None:
    short = {
        (steps, warmup): learning_rate_at(Recipe(schedule=schedule, warmup=warmup), steps)
        for steps in (1, 2, 3, 4, 7) for warmup in (0.0, 0.05, 0.99)
    }  # fmt: skip
    got = jax.jit(lambda: [jax.vmap(at)(jnp.arange(steps)) for (steps, _), at in short.items()])()
    for run, values in zip(short, got, strict=True):
        assert np.isfinite(values).all(), run
        assert values.min() >= 0, run
        assert values.max() > 0, run


def test_the_optimizer_follows_the_schedule() -> None:
    recipe = Recipe(optimizer="sgd", schedule="cosine", warmup=0.5, learning_rate=0.1)
    optimizer = build_optimizer(recipe, 10)
    parameters, gradient = {"w": jnp.zeros(1)}, {"w": jnp.ones(1)}
    state, momentum = optimizer.init(parameters), 0.0
    for rate in rates_of(recipe, 10)[:10]:
        update, state = update_of(optimizer, gradient, state, parameters)
        momentum = 0.9 * momentum + 1
        np.testing.assert_allclose(update["w"], -momentum * rate, rtol=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    # With a constant rate of 0.1: SGD follows the gradient, Adam normalises it, Lion takes its sign.
    [("sgd", [-0.4, 0.1]), ("adam", [-0.1, 0.1]), ("adamw", [-0.1, 0.1]), ("lion", [-0.1, 0.1])],
)
def test_each_rule(optimizer: str, expected: list[float]) -> None:
    recipe = Recipe(optimizer=optimizer, schedule="constant", warmup=0, learning_rate=0.1)
    update = first_update(recipe, {"bias": jnp.zeros(2)}, {"bias": jnp.array([4.0, -1.0])})
    np.testing.assert_allclose(update["bias"], expected, rtol=1e-4)


def test_adam_and_lion_are_different_rules() -> None:
    recipe = {"schedule": "constant", "warmup": 0.0, "learning_rate": 0.1, "weight_decay": 0.0}
    second = {}
    for name in OPTIMIZERS:
        optimizer = build_optimizer(Recipe(optimizer=name, **recipe), 10)
        parameters = {"w": jnp.zeros(1)}
        state = optimizer.init(parameters)
        for gradient in (4.0, -1.0):
            update, state = update_of(optimizer, {"w": jnp.array([gradient])}, state, parameters)
        second[name] = float(update["w"][0])
    assert second["adam"] == pytest.approx(second["adamw"])
    assert second["lion"] == pytest.approx(0.1)  # interpolated gradient 0.9 * 0.04 - 0.1 * 1 < 0
    assert second["sgd"] == pytest.approx(-0.1 * (0.9 * 4 - 1))
    assert len({round(value, 4) for value in second.values()}) == 4  # muon gives what is no matrix to Nesterov's Adam


def test_muon_makes_the_update_of_a_matrix_orthogonal() -> None:
    gradient = {"kernel": jnp.array([[3.0, 1.0, 0.0], [0.5, 2.0, 1.0]])}
    recipe = Recipe(optimizer="muon", schedule="constant", warmup=0.0, learning_rate=0.1, weight_decay=0.0)
    update = np.asarray(first_update(recipe, jax.tree.map(jnp.zeros_like, gradient), gradient)["kernel"])
    lengths = np.linalg.svd(update, compute_uv=False)
    np.testing.assert_allclose(lengths, [0.1, 0.1], rtol=0.35)  # five iterations give 1 +- 0.3 by design
    before = np.linalg.svd(np.asarray(gradient["kernel"]), compute_uv=False)
    assert before[0] / before[1] > 1.8 > 1.5 > lengths[0] / lengths[1]


def test_options_reach_the_optimizer_and_the_schedule() -> None:
    nothing, gradient = {"w": jnp.zeros(1)}, {"w": jnp.array([4.0])}
    recipe = {"optimizer": "sgd", "schedule": "constant", "warmup": 0.0, "learning_rate": 1.0}
    for momentum in (0.0, 0.5):
        optimizer = build_optimizer(Recipe(**recipe, optimizer_options={"momentum": momentum}), 10)
        _, state = update_of(optimizer, gradient, optimizer.init(nothing), nothing)
        np.testing.assert_allclose(update_of(optimizer, gradient, state, nothing)[0]["w"], -4 * (1 + momentum))
    got = rates(100, schedule="cosine", warmup=0.0, schedule_options={"alpha": 0.25})  # type: ignore[arg-type]
    np.testing.assert_allclose(got[[0, 100]], [0.1, 0.025], rtol=1e-5)
    got = rates(100, schedule="one-cycle", schedule_options={"pct_start": 0.6})  # type: ignore[arg-type]
    assert got.argmax() == 60


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_option_is_one_of_optax(optimizer: str) -> None:
    options = {name: 4 if name == "ns_steps" else 0.5 for name in OPTIMIZERS[optimizer]}
    parameters = {"kernel": jnp.ones((2, 2))}
    plain, changed = (
        build_optimizer(Recipe(optimizer=optimizer, warmup=0.0, optimizer_options=given), 10) for given in ({}, options)
    )
    first = []
    for rule in (plain, changed):
        state = rule.init(parameters)
        for factor in (1.0, -0.3):
            update, state = update_of(
                rule, {"kernel": jnp.array([[1.0, 2.0], [-1.0, 0.1]]) * factor}, state, parameters
            )
        first.append(np.asarray(update["kernel"]))
    assert not np.allclose(*first, rtol=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_option_of_a_schedule_is_one_of_optax(schedule: str) -> None:
    plain = rates(50, schedule=schedule, warmup=0.0)
    for name in SCHEDULES[schedule]:
        value = {"pct_start": 0.7, "exponent": 2.0, "alpha": 0.3}.get(name, 7.0)
        changed = rates(50, schedule=schedule, warmup=0.0, schedule_options={name: value})  # type: ignore[arg-type]
        assert not np.allclose(plain, changed, rtol=1e-4), name


# --------------------------------------------------------------------------------------------- accumulation and average


def run(recipe: Recipe, gradients: list[float], total: int) -> tuple[list[float], Any]:
    optimizer = build_optimizer(recipe, total)
    parameters = {"w": jnp.zeros(1)}
    state, seen, update_of = optimizer.init(parameters), [], jax.jit(optimizer.update)
    for gradient in gradients:
        update, state = update_of({"w": jnp.array([gradient])}, state, parameters)
        parameters = cast(dict, optax.apply_updates(parameters, update))
        seen.append(float(parameters["w"][0]))
    return seen, state


PLAIN = {"optimizer": "sgd", "schedule": "constant", "warmup": 0.0, "learning_rate": 0.1,
         "optimizer_options": {"momentum": 0.0}}  # fmt: skip


def test_accumulated_gradients_are_averaged_into_one_update() -> None:
    seen, _ = run(Recipe(**PLAIN, accumulate=3), [3.0, 0.0, 6.0, 1.0, 1.0, 1.0, 9.0], 7)
    np.testing.assert_allclose(seen, [0, 0, -0.3, -0.3, -0.3, -0.4, -0.4], rtol=1e-5, atol=1e-7)


def test_the_norm_that_is_clipped_is_that_of_the_average() -> None:
    seen, _ = run(Recipe(**PLAIN, accumulate=2, clip_norm=1.0), [8.0, -8.0, 4.0, 0.0], 4)
    np.testing.assert_allclose(seen, [0, 0, 0, -0.1], rtol=1e-5, atol=1e-7)


def test_the_schedule_counts_updates() -> None:
    recipe = Recipe(**{**PLAIN, "schedule": "cosine"}, accumulate=4)
    assert updates_of(recipe, 43) == 10
    seen, _ = run(recipe, [1.0] * 40, 43)
    steps = -np.diff([0.0, *seen[3::4]])
    np.testing.assert_allclose(steps, rates_of(recipe, 10)[:10], rtol=1e-4, atol=1e-8)
    with pytest.raises(ParameterError, match="fewer batches than one update takes"):
        build_optimizer(recipe, 3)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_table_of_rates_is_the_schedule(schedule: str) -> None:
    recipe = Recipe(schedule=schedule, accumulate=2)
    table = learning_rates(recipe, 81)
    assert (table.shape, table.dtype) == ((40,), np.float32)
    np.testing.assert_allclose(table, rates_of(recipe, 40)[:40], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_average_follows_the_parameters(accumulate: int) -> None:
    gradients = [float(g) for g in (1, -2, 3, 0, 5, 4)] * 4
    recipe = Recipe(**PLAIN, ema=0.5, accumulate=accumulate)
    seen, state = run(recipe, gradients, 24)
    expected = 0.0
    for n, w in enumerate(seen[accumulate - 1 :: accumulate]):
        kept = min(0.5, (1 + n) / (10 + n))
        expected = kept * expected + (1 - kept) * w
    found = averaged({"opt_state": state._asdict() if accumulate == 1 else
                      {"inner_opt_state": state.inner_opt_state._asdict()}})  # fmt: skip
    assert found is not None
    np.testing.assert_allclose(found["w"], expected, rtol=1e-5)
    assert seen == run(Recipe(**PLAIN, accumulate=accumulate), gradients, 24)[0]  # it only watches


def test_without_it_there_is_no_average() -> None:
    for optimizer in (build_optimizer(Recipe(), 4), build_optimizer(Recipe(accumulate=2), 4)):
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        state = nnx.to_pure_dict(nnx.as_pure(nnx.state(nnx.Optimizer(model, optimizer, wrt=nnx.Param))))
        assert averaged(state) is None


def test_clipping_keeps_the_direction_and_limits_the_norm() -> None:
    gradient = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    zeros = jax.tree.map(jnp.zeros_like, gradient)
    recipe = {"optimizer": "sgd", "schedule": "constant", "warmup": 0.0, "learning_rate": 1.0}
    clipped = first_update(Recipe(clip_norm=0.5, **recipe), zeros, gradient)
    np.testing.assert_allclose([clipped["a"][0], clipped["b"][0]], [-0.3, -0.4], rtol=1e-5)
    for clip_norm in (None, 5.1):
        update = first_update(Recipe(clip_norm=clip_norm, **recipe), zeros, gradient)
        np.testing.assert_allclose([update["a"][0], update["b"][0]], [-3, -4], rtol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "muon"])
def test_all_may_decay(optimizer: str) -> None:
    parameters = {"kernel": jnp.full((2, 2), 5.0), "bias": jnp.full(2, 5.0)}
    nothing = jax.tree.map(jnp.zeros_like, parameters)
    recipe = Recipe(
        optimizer=optimizer, schedule="constant", warmup=0, learning_rate=0.1, weight_decay=0.2, decay="all"
    )
    for update in first_update(recipe, parameters, nothing).values():
        np.testing.assert_allclose(update, -0.1 * 0.2 * 5, rtol=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "decays"), [("adamw", True), ("lion", True), ("muon", True), ("adam", False), ("sgd", False)]
)
def test_decay_shrinks_kernels_only(optimizer: str, decays: bool) -> None:
    parameters = {"kernel": jnp.full((2, 2), 5.0), "bias": jnp.full(2, 5.0)}
    nothing = jax.tree.map(jnp.zeros_like, parameters)
    recipe = Recipe(optimizer=optimizer, schedule="constant", warmup=0, learning_rate=0.1, weight_decay=0.2)
    update = first_update(recipe, parameters, nothing)
    np.testing.assert_allclose(update["kernel"], -0.1 * 0.2 * 5 if decays else 0.0, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(update["bias"], np.zeros(2))


def test_in_a_model_the_kernels_alone_decay() -> None:
    model = nnx.jit(lambda: cnn.build(Feature("uint8", (4, 4, 1)), 3, dropout=0.0, rngs=nnx.Rngs(0)))()
    recipe = Recipe(schedule="constant", warmup=0, learning_rate=0.1, weight_decay=0.5)
    optimizer = nnx.Optimizer(model, build_optimizer(recipe, 10), wrt=nnx.Param)
    before = nnx.as_pure(nnx.state(model, nnx.Param))
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), nnx.state(model, nnx.Param))
    nnx.jit(lambda optimizer, model: optimizer.update(model, nothing))(optimizer, model)
    after = nnx.as_pure(nnx.state(model, nnx.Param))
    decayed = set()
    for (path, was), now in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if np.array_equal(was, now):
            continue
        np.testing.assert_allclose(now, was * 0.95, rtol=1e-5)
        decayed.add(name)
    assert decayed == {"first/kernel", "second/kernel", "hidden/kernel", "head/kernel"}


def test_the_mask_has_the_shape_of_the_parameters() -> None:
    got = is_kernel({"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2), "conv": {"kernel": jnp.ones((3, 3, 1, 2))}})
    assert got == {"kernel": True, "bias": False, "conv": {"kernel": True}}


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="no optimizer 'adanw'") as caught:
        build_optimizer(Recipe(optimizer="adanw"), 10)
    assert "adamw" in str(caught.value.cure)
    with pytest.raises(UnknownNameError, match="no schedule 'cosin'") as caught:
        learning_rate_at(Recipe(schedule="cosin"), 10)
    assert caught.value.cure == "did you mean cosine?"


@pytest.mark.parametrize("total_steps", [0, -1, 1.5, True])
def test_a_run_has_steps(total_steps: int) -> None:
    with pytest.raises(ParameterError, match="updates"):
        learning_rate_at(Recipe(), total_steps)
    with pytest.raises(ParameterError, match="total_steps"):
        build_optimizer(Recipe(), total_steps)


def test_recipes_give_optax_transformations() -> None:
    for name in OPTIMIZERS:
        assert isinstance(build_optimizer(Recipe(optimizer=name), 3), optax.GradientTransformation)
