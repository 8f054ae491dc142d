from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
import toy

from datasets.errors import ParameterError
from datasets.schema import Dataset, Recipe
from tasks.objective import Objective
from tasks.training import with_averages
from tasks.vmapped import VmappedStep

TOTAL = 6
PLAIN = Recipe(batch_size=8, dropout=0.3, warmup=0.4)
RULES = {
    "adamw, cosine": replace(PLAIN, schedule_options={"alpha": 0.1}, weight_decay=0.1),
    "sgd, one-cycle": replace(
        PLAIN, optimizer="sgd", schedule="one-cycle", accumulate=2, ema=0.9, clip_norm=0.5,
        optimizer_options={"momentum": 0.5},
    ),
    "lion, constant": replace(PLAIN, optimizer="lion", schedule="constant", decay="all"),
    "adam": replace(PLAIN, optimizer="adam", warmup=0.0),
    "muon": replace(PLAIN, optimizer="muon", decay="all", weight_decay=0.1),
}  # fmt: skip


def members_of(recipe: Recipe) -> list[Recipe]:
    return [replace(recipe, learning_rate=rate, seed=seed) for rate, seed in ((1e-2, 0), (1e-3, 5), (1e-2, 0))]


def batches(members: int) -> dict[str, np.ndarray]:
    """[members, steps, batch, ...]: a batch of its own for each member and step."""
    drawn = [toy.pictures(TOTAL * 8, seed) for seed in range(members)]
    return {name: np.stack([one[name].reshape(TOTAL, 8, *one[name].shape[1:]) for one in drawn]) for name in drawn[0]}


def singly(dataset: Dataset, recipe: Recipe, own: dict[str, np.ndarray]) -> tuple[Any, list[Any]]:
    step = Objective(replace(dataset, recipe=recipe)).train_step(TOTAL)
    carry, seen = step.initial_carry(), []
    for at in range(TOTAL):
        carry, metrics = step(carry, {name: column[at] for name, column in own.items()})
        seen.append(jax.device_get(metrics))
    return jax.device_get(with_averages(carry).state["model"]), seen


@pytest.mark.parametrize(
    "rule", [next(iter(RULES)), *(pytest.param(name, marks=pytest.mark.slow) for name in list(RULES)[1:])]
)
def test_each_member_is_trained_as_it_is_by_itself(rule: str) -> None:
    dataset, members = toy.dataset(), members_of(RULES[rule])[:2]
    data = batches(len(members))
    step = VmappedStep(dataset, members, TOTAL)
    carry = step.initial_carry()
    losses = []
    for at in range(TOTAL):
        carry, metrics = step(carry, {name: column[:, at] for name, column in data.items()})
        losses.append(np.asarray(metrics["loss"]))
    assert (step.budget.used, step.budget.budget) == (1, 1)
    for at, recipe in enumerate(members):
        state, seen = singly(dataset, recipe, {name: column[at] for name, column in data.items()})
        own = jax.device_get(with_averages(step.member(carry, at)).state["model"])
        np.testing.assert_allclose([each[at] for each in losses], [one["loss"] for one in seen], rtol=2e-4)
        for path, (mine, its) in zip(
            jax.tree_util.tree_leaves_with_path(own),
            zip(jax.tree.leaves(own), jax.tree.leaves(state), strict=True),
            strict=True,
        ):
            if jax.numpy.issubdtype(mine.dtype, np.floating):
                np.testing.assert_allclose(mine, its, rtol=2e-3, atol=2e-5, err_msg=str(path[0]))


def test_a_bad_batch_freezes_its_member_to_the_bit_and_no_other() -> None:
    data = batches(3)

    def trained(step: VmappedStep, *, bad: bool) -> tuple[Any, list[Any], Any]:
        carry, applied, before = step.initial_carry(), [], None
        for at in range(TOTAL):
            if at == 2 and bad:
                carry = step.place(with_nan(carry, member=1))
                before = jax.device_get(step.member(carry, 1).state)
            carry, metrics = step(carry, {name: column[:, at] for name, column in data.items()})
            applied.append(np.asarray(metrics["applied"]).tolist())
        return carry, applied, before

    step = VmappedStep(toy.dataset(), members_of(PLAIN), TOTAL)
    well, applied, _ = trained(step, bad=False)
    assert applied == [[True] * 3] * TOTAL
    carry, applied, before = trained(step, bad=True)
    assert applied == [[True] * 3] * 2 + [[True, False, True]] * (TOTAL - 2)
    assert np.asarray(carry.tripped_at).tolist() == [-1, 2, -1]
    assert step.sound(carry).tolist() == [True, False, True]
    same(step.member(carry, 1).state, before)
    for at in (0, 2):
        same(step.member(carry, at).state, step.member(well, at).state)


def with_nan(carry: Any, member: int) -> Any:
    """A weight of a member becomes NaN, which makes its loss and its gradients NaN."""
    model = carry.state["model"]
    kernel = model["head"]["kernel"].at[member, 0, 0].set(np.nan)
    return replace(carry, state={**carry.state, "model": {**model, "head": {**model["head"], "kernel": kernel}}})


def same(one: Any, other: Any) -> None:
    for mine, its in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not jax.numpy.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(mine, its)


def test_members_that_differ_in_more_are_refused() -> None:
    with pytest.raises(ParameterError, match="one program"):
        VmappedStep(toy.dataset(), [PLAIN, replace(PLAIN, batch_size=4)], TOTAL)


def test_the_memory_of_a_program_grows_with_its_members() -> None:
    one, three = (VmappedStep(toy.dataset(), members_of(PLAIN)[:count], TOTAL).memory for count in (1, 3))
    assert 2 * one < three < 4 * one
    assert one > 3 * 4 * (9 * 8 * 128)  # weights and two moments
