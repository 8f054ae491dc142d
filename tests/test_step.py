from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from step_cases import BATCH, FEATURES, Tiny, bad_batch, batch, bits, loss_fn, make_step, run, tiny, watched

from datasets.errors import ContractError, NonFiniteError, TraceBudgetExceeded, TrainingError
from tasks.carry import Policy
from tasks.eval_step import EvalStep, pad_batch
from tasks.firewall import Firewall
from tasks.losses import cross_entropy, example_cross_entropy
from tasks.step import TrainStep, leaf_paths


@pytest.fixture(scope="module")
def stop() -> TrainStep:
    return make_step()


@pytest.fixture(scope="module")
def skip() -> TrainStep:
    return make_step(policy=Policy(skip=True, max_consecutive=2, max_total=3))


def label_equal_to_classes(index: int) -> Any:
    columns = batch(index)
    columns["y"][2] = 3
    return columns


def overflowing(index: int) -> Any:
    columns = batch(index)
    columns["x"][2, 1] = np.inf
    return columns


# ---------------------------------------------------------------------------------------------------- the healthy step


def test_it_trains_within_its_budget(stop: TrainStep) -> None:
    carry, metrics = run(stop, stop.initial_carry(), [batch(0)] * 60)
    assert float(np.mean([m["loss"] for m in metrics[-10:]])) < 0.8 * float(metrics[0]["loss"])
    assert all(bool(m["applied"]) for m in metrics)
    assert (int(carry.step), int(carry.skipped), int(carry.tripped_at)) == (60, 0, -1)
    assert stop.budget.report()["used"] == 1
    assert stop.report()["flops"] > 0


def test_it_equals_a_step_written_by_hand(stop: TrainStep) -> None:
    model = tiny()
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
    carry, metrics = run(stop, stop.initial_carry(), [batch(0), batch(1), batch(2)])
    grads = None
    for index in range(3):
        (loss, _), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch(index))
        optimizer.update(model, grads)
        np.testing.assert_allclose(metrics[index]["loss"], loss, rtol=1e-5)
        squares = [float(jnp.vdot(g, g)) for g in jax.tree.leaves(nnx.as_pure(grads))]
        np.testing.assert_allclose(metrics[index]["grad_sq"], squares, rtol=1e-4, atol=1e-10)
        np.testing.assert_allclose(metrics[index]["grad_norm"], np.sqrt(sum(squares)), rtol=1e-5)
    assert stop.gradient_leaves == leaf_paths(nnx.as_pure(grads))
    np.testing.assert_allclose(carry.state["model"]["head"]["kernel"], model.head.kernel[...], rtol=1e-4, atol=1e-6)
    # Not the mean: Adam blows up the rounding noise that is the gradient of a bias before BatchNorm.
    np.testing.assert_allclose(carry.state["model"]["norm"]["var"], model.norm.var[...], rtol=1e-4)


def test_the_model_that_came_in_is_left_alone() -> None:
    model = tiny()
    model.eval()
    before = bits(nnx.as_pure(nnx.state(model)))
    step = TrainStep(model, optax.sgd(0.1), loss_fn, FEATURES, BATCH)
    carry, _ = step(step.initial_carry(), batch(0))
    assert bits(nnx.as_pure(nnx.state(model))) == before
    assert model.dropout.deterministic
    # It trains in train mode, whatever the mode of what came in: the statistics move.
    assert bits(carry.state["model"]["norm"]["mean"]) != bits(step.initial_carry().state["model"]["norm"]["mean"])


def test_the_carry_is_donated_and_fresh_ones_are_copies(stop: TrainStep) -> None:
    first, second = stop.initial_carry(), stop.initial_carry()
    after, _ = stop(first, batch(0))
    assert all(x.is_deleted() for x in jax.tree.leaves(first.state))
    again, _ = stop(second, batch(0))
    assert bits(after) == bits(again)
    with pytest.raises(ContractError, match="used up"):
        stop(first, batch(0))


def test_a_carry_from_elsewhere_is_placed_without_a_new_trace(stop: TrainStep) -> None:
    carry, _ = run(stop, stop.initial_carry(), [batch(0)])
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), carry) == jax.tree.map(
        lambda x: (x.shape, x.dtype, x.sharding), stop.abstract_carry()
    )
    elsewhere = jax.tree.map(jnp.copy, carry)
    expected, _ = run(stop, carry, [batch(1)])
    got, _ = run(stop, stop.place(elsewhere), [batch(1)])
    assert bits(got) == bits(expected)
    assert (len(stop.budget.traces), len(stop.budget.compilations)) == (1, 1)


def test_two_trainings_in_one_process_are_within_budget(stop: TrainStep) -> None:
    other = make_step()
    ours, _ = run(stop, stop.initial_carry(), [batch(0), batch(1)])
    theirs, _ = run(other, other.initial_carry(), [batch(0), batch(1)])
    assert bits(ours) == bits(theirs)
    assert (stop.budget.used, other.budget.used) == (1, 1)


@pytest.fixture
def no_chex() -> Iterator[None]:
    chex.disable_asserts()
    yield
    chex.enable_asserts()


# -------------------------------------------------------------------------------------------------- what doesn't fit


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"x": batch(0)["x"][:1], "y": batch(0)["y"][:1]}, "batch/x: float32[8,4] -> float32[1,4]"),
        ({"x": batch(0)["x"].astype(np.uint8)}, "batch/x: float32[8,4] -> uint8[8,4]"),
        ({"y": batch(0)["y"].tolist()}, "batch/y: int32[8] -> 8 separate values"),
        ({"z": batch(0)["y"]}, "batch/z: absent -> int32[8]"),
    ],
)
@pytest.mark.usefixtures("no_chex")
def test_another_batch_is_refused_and_the_carry_lives(stop: TrainStep, change: Any, changed: str) -> None:
    carry = stop.initial_carry()
    before = bits(carry)
    with pytest.raises(TraceBudgetExceeded) as caught:
        stop(carry, {**batch(0), **change})
    assert (caught.value.facts["budget"], caught.value.facts["traces"]) == (1, 2)
    assert caught.value.facts["changed"].startswith(changed)
    assert bits(carry) == before


class Sows(Tiny):
    def __call__(self, x: jax.Array) -> jax.Array:
        self.sow(nnx.Intermediate, "seen", x)
        return super().__call__(x)


def column_loss(model: Tiny, columns: Any) -> Any:
    return cross_entropy(model(columns["x"]), columns["y"][:, None]), {}


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda m, b: example_cross_entropy(m(b["x"]), b["y"]), "expected: \\(loss, dict\\)"),
        (lambda m, b: (example_cross_entropy(m(b["x"]), b["y"]), {}), "loss has another shape"),
        (lambda m, b: (jnp.int32(m(b["x"]).sum()), {}), "isn't a float"),
        (lambda m, b: (m(b["x"]).sum(), {"grad_norm": jnp.float32(0)}), "got: grad_norm"),
        (lambda m, b: chex.assert_rank(m(b["x"]), 3), "rank"),
        (column_loss, "size 1"),
    ],
)
def test_a_wrong_loss_is_refused_while_it_is_traced(loss: Any, what: str) -> None:
    with pytest.raises(ContractError, match=what):
        make_step(loss)


@pytest.mark.filterwarnings("ignore:Using 'Module.sow")
def test_a_forward_pass_that_grows_the_state_is_refused() -> None:
    with pytest.raises(ContractError, match="seen"):
        TrainStep(Sows(nnx.Rngs(0)), optax.sgd(0.1), loss_fn, FEATURES, BATCH)


# ----------------------------------------------------------------------------------------------------- the firewall


step_of = functools.cache(make_step)


def divides_by_zero(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    return loss / (columns["x"][2, 1] != 7).astype(jnp.float32), aux


def nan_in_the_gradient_only(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    distance = (columns["x"][2, 1] - 7) * (1 + model.head.kernel[...].sum())
    return loss + 0 * jnp.sqrt(jnp.abs(distance)), aux


def great_gradient(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    factor = jnp.where(columns["x"][2, 1] == 7, 1e25, 0.0)
    return loss + factor * model.head.kernel[...].sum() * 1e-5, aux


def seven(index: int) -> Any:
    columns = batch(index)
    columns["x"][2, 1] = 7
    return columns


@pytest.mark.parametrize(
    ("loss", "bad", "kind"),
    [
        (loss_fn, bad_batch, "loss"),
        (loss_fn, overflowing, "loss"),
        (loss_fn, label_equal_to_classes, "loss"),
        (divides_by_zero, seven, "loss"),
        (nan_in_the_gradient_only, seven, "grad"),
        (great_gradient, seven, "grad"),
    ],
)
def test_a_bad_batch_changes_nothing_and_later_steps_neither(stop: TrainStep, loss: Any, bad: Any, kind: str) -> None:
    step = stop if loss is loss_fn else step_of(loss)
    good = [batch(0), batch(1), batch(2)]
    expected, _ = run(step, step.initial_carry(), good)
    batches = [*good, bad(3), batch(4), batch(5), batch(6)]
    carry, error = watched(step, Firewall(step, every=6), batches)
    assert bits(carry.state) == bits(expected.state)
    assert (int(carry.step), int(carry.tripped_at)) == (3, 3)
    assert (error.facts["step"], error.facts["kind"]) == (3, kind)
    assert "'row': 24}, {'file': 'raw', 'row': 25}" in error.facts["records"]
    assert step.budget.used == 1
    assert not step.poisoned(carry)


def test_a_label_out_of_range_has_a_finite_gradient(stop: TrainStep) -> None:
    """The case that a firewall of gradients alone lets pass."""
    _, metrics = stop(stop.initial_carry(), label_equal_to_classes(0))
    assert jnp.isnan(metrics["loss"])
    assert jnp.isfinite(metrics["grad_sq"]).all()
    assert not metrics["applied"]


def test_a_finite_gradient_whose_square_overflows_counts_as_bad() -> None:
    step = step_of(great_gradient)
    carry = step.initial_carry()
    _, _, grads, _ = jax.jit(step.gradients)(carry, seven(0))
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(nnx.as_pure(grads)))
    _, metrics = step(carry, seven(0))
    assert not metrics["applied"]


def test_skipping_equals_a_run_that_never_saw_the_batches(skip: TrainStep) -> None:
    good = [batch(i) for i in range(6)]
    expected, _ = run(skip, skip.initial_carry(), good)
    # One look falls between two bad batches in a row: neither may be missed or reported twice.
    mixed = [good[0], bad_batch(9), good[1], bad_batch(10), bad_batch(11), *good[2:]]
    firewall = Firewall(skip, every=4)
    carry = skip.initial_carry()
    for index, columns in enumerate(mixed):
        carry, metrics = skip(carry, columns)
        firewall.observe(index, columns, lambda at=index: range(10 * at, 10 * at + BATCH), metrics)
        firewall.check(carry)
    firewall.check(carry, now=True)
    assert bits(carry.state) == bits(expected.state)
    assert [s.verdict.step for s in firewall.skips] == [1, 3, 4]
    assert firewall.skips[1].records == tuple(range(30, 38))
    assert firewall.skips[1].verdict.kind == "loss"
    # `step` is the position in the data; the optimizer's own count is that of the updates.
    assert (int(carry.step), int(carry.skipped)) == (9, 3)
    assert int(carry.state["optimizer"]["step"]) == int(carry.step) - int(carry.skipped) == 6


def test_five_bad_batches_in_a_row_reach_the_limit(skip: TrainStep, tmp_path: Path) -> None:
    expected, _ = run(skip, skip.initial_carry(), [batch(0)])
    firewall = Firewall(skip, every=10, folder=tmp_path)
    carry, error = watched(skip, firewall, [batch(0), *(bad_batch(i) for i in range(1, 6)), batch(6)])
    assert (error.facts["step"], error.facts["skipped"]) == (3, 2)
    assert "2 in a row, 2 in all" in error.what
    assert [s.verdict.step for s in firewall.skips] == [1, 2]
    assert bits(carry.state) == bits(expected.state)
    assert int(carry.step) == 3
    assert Path(error.facts["capsule"]).is_dir()


def test_the_total_of_skips_has_a_limit_too(skip: TrainStep) -> None:
    batches = [columns for i in range(5) for columns in (bad_batch(i), batch(i))]
    carry, _ = run(skip, skip.initial_carry(), batches)
    assert (int(carry.skipped), int(carry.tripped_at)) == (3, 6)
    expected, _ = run(skip, skip.initial_carry(), [batch(0), batch(1), batch(2)])
    assert bits(carry.state) == bits(expected.state)


def test_a_firewall_that_is_never_asked_refuses_to_forget(stop: TrainStep) -> None:
    firewall = Firewall(stop, every=2)
    _, metrics = stop(stop.initial_carry(), batch(0))
    for index in range(3):
        firewall.observe(index, batch(0), list, metrics)
    with pytest.raises(TrainingError, match="unchecked"):
        firewall.observe(3, batch(0), list, metrics)


def test_a_carry_that_tripped_elsewhere_is_refused(stop: TrainStep) -> None:
    carry, _ = stop(stop.initial_carry(), bad_batch(0))
    with pytest.raises(NonFiniteError, match="isn't in memory"):
        Firewall(stop).check(carry, now=True)


def test_an_optimizer_that_makes_nan_of_good_gradients_is_found() -> None:
    step = TrainStep(tiny(), optax.sgd(lambda count: 0.1 / (1.0 - count)), loss_fn, FEATURES, BATCH)
    carry, _ = run(step, step.initial_carry(), [batch(0)])
    assert step.poisoned(carry) == []
    carry, _ = run(step, carry, [batch(1)])
    assert "model/head/kernel" in step.poisoned(carry)


# ---------------------------------------------------------------------------------------------------------- evaluation


def example_metrics(model: Tiny, columns: Any) -> dict[str, jax.Array]:
    logits = model(columns["x"])
    hit = logits.argmax(-1) == columns["y"]
    pair = jax.nn.one_hot(columns["y"] * 3 + logits.argmax(-1), 9).reshape(-1, 3, 3)
    return {"loss": example_cross_entropy(logits, columns["y"]), "accuracy": hit, "confusion": pair}


@pytest.fixture(scope="module")
def evaluation(stop: TrainStep) -> EvalStep:
    return EvalStep(tiny(), example_metrics, FEATURES, BATCH, stop.abstract_carry())


def loss_of_the_batch(model: Tiny, columns: Any) -> dict[str, jax.Array]:
    return {"loss": cross_entropy(model(columns["x"]), columns["y"])}


def short(index: int, rows: int) -> Any:
    return {name: column[:rows] for name, column in batch(index).items()}


def test_evaluation_leaves_training_as_it_was(stop: TrainStep, evaluation: EvalStep) -> None:
    batches = [batch(i) for i in range(4)]
    expected, expected_metrics = run(stop, stop.initial_carry(), batches)
    carry, first = run(stop, stop.initial_carry(), batches[:2])
    before = bits(carry)
    results = [evaluation.evaluate(carry, [batch(7), short(8, 3)]) for _ in range(2)]
    assert bits(carry) == before
    assert results[0] == results[1]
    carry, second = run(stop, carry, batches[2:])
    assert bits(carry) == bits(expected)
    assert [m["loss"] for m in first + second] == [m["loss"] for m in expected_metrics]
    assert (stop.budget.used, evaluation.budget.used) == (1, 1)


def test_every_example_counts_once(stop: TrainStep, evaluation: EvalStep) -> None:
    carry, _ = run(stop, stop.initial_carry(), [batch(0)])
    got = evaluation.evaluate(carry, [batch(7), short(8, 3)])
    model = stop.model(carry)
    whole = {name: np.concatenate([batch(7)[name], batch(8)[name][:3]]) for name in FEATURES}
    expected = example_metrics(model, whole)
    assert got["examples"] == 11
    np.testing.assert_allclose(got["loss"], expected["loss"].mean(), rtol=1e-5)
    np.testing.assert_allclose(got["accuracy"], expected["accuracy"].mean(), rtol=1e-6)
    np.testing.assert_allclose(got["confusion"], expected["confusion"].mean(0), rtol=1e-6)


def test_what_fills_a_batch_can_not_poison_it_but_an_example_can(stop: TrainStep, evaluation: EvalStep) -> None:
    carry = stop.initial_carry()
    padded = pad_batch(short(8, 3), BATCH)
    clean = evaluation(carry, padded)
    padded["x"] = padded["x"].copy()
    padded["x"][5] = np.nan
    assert bits(evaluation(carry, padded)) == bits(clean)
    padded["x"][1] = np.nan
    assert jnp.isnan(evaluation(carry, padded)["loss"])
    assert np.isnan(evaluation.evaluate(carry, [batch(0), bad_batch(1)])["loss"])


def test_evaluation_refuses_what_it_was_not_compiled_for(stop: TrainStep, evaluation: EvalStep) -> None:
    with pytest.raises(TraceBudgetExceeded, match="eval_step"):
        evaluation(stop.initial_carry(), {**short(0, 3), "mask": np.ones(3, bool)})
    with pytest.raises(ContractError, match="nothing to evaluate"):
        evaluation.evaluate(stop.initial_carry(), [])
    with pytest.raises(ContractError, match="filled up"):
        pad_batch(batch(0), BATCH - 1)
    with pytest.raises(ContractError, match="each example"):
        EvalStep(tiny(), loss_of_the_batch, FEATURES, BATCH, stop.abstract_carry())


# ----------------------------------------------------------------------------------------------------- several devices


def test_a_carry_on_two_devices_is_trained_evaluated_and_copied() -> None:
    code = """
import jax
from step_cases import *
from test_step import example_metrics
from tasks.eval_step import EvalStep

P, NamedSharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
step = make_step(sharding=whole, batch_sharding=split)
evaluation = EvalStep(tiny(), example_metrics, FEATURES, BATCH, step.abstract_carry())
results = []
for _ in range(2):
    carry, _ = run(step, step.initial_carry(), [batch(0), bad_batch(1), batch(2)])
    results.append((bits(carry), evaluation.evaluate(carry, [batch(3)])))
assert results[0] == results[1]
assert int(carry.tripped_at) == 1
assert {x.sharding for x in jax.tree.leaves(carry)} == {whole}
print(step.budget.used, evaluation.budget.used)
"""
    tests = Path(__file__).parent
    paths = os.pathsep.join([str(tests.parent), str(tests)])
    environment = {**os.environ, "PYTHONPATH": paths, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "1"], done.stderr


@pytest.mark.parametrize(
    ("metric", "got"), [("text", "str"), (1.0, "float"), (None, "NoneType"), (jax.random.key(0), "key<fry>")]
)
def test_a_metric_that_is_no_array_of_numbers_is_named(metric: Any, got: str) -> None:
    def loss(model: Any, columns: Any) -> Any:
        return loss_fn(model, columns)[0], {"fine": jnp.int32(1), "odd": metric}

    with pytest.raises(ContractError, match="isn't an array of numbers") as caught:
        make_step(loss)
    assert (caught.value.facts["field"], caught.value.facts["got"]) == ("odd", got)
