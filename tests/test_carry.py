from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from datasets.errors import ParameterError
from tasks.carry import Carry, Policy, advanced, fresh_carry

STOP, SKIP = Policy(), Policy(skip=True, max_consecutive=2, max_total=3)
HEALTHY, BAD, NOTHING = (True, False), (False, True), (False, False)
"""Of a batch, whether it was applied and whether it was bad; neither is so once the latch has tripped."""


def carry(step: int, skipped: int, streak: int, tripped_at: int) -> Carry:
    return Carry({}, *(jnp.int32(number) for number in (step, skipped, streak, tripped_at)))


@pytest.mark.parametrize(
    ("before", "batch", "policy", "after"),
    [
        ((5, 0, 0, -1), HEALTHY, STOP, (6, 0, 0, -1)),
        ((5, 0, 0, -1), BAD, STOP, (5, 0, 0, 5)),
        ((5, 0, 0, 5), NOTHING, STOP, (5, 0, 0, 5)),
        ((5, 0, 0, -1), BAD, SKIP, (6, 1, 1, -1)),
        ((6, 1, 1, -1), HEALTHY, SKIP, (7, 1, 0, -1)),
        ((6, 1, 1, -1), BAD, SKIP, (7, 2, 2, -1)),
        ((7, 2, 2, -1), BAD, SKIP, (7, 2, 2, 7)),  # three in a row
        ((9, 3, 0, -1), BAD, SKIP, (9, 3, 0, 9)),  # four in all
        ((9, 3, 0, 9), NOTHING, SKIP, (9, 3, 0, 9)),
    ],
)
def test_what_a_batch_does(before: tuple[int, ...], batch: tuple[bool, bool], policy: Policy, after: tuple) -> None:
    healthy, bad = map(jnp.bool_, batch)
    new = advanced(carry(*before), {"model": "new"}, healthy, bad=bad, policy=policy)
    assert new.state == {"model": "new"}
    assert (int(new.step), int(new.skipped), int(new.streak), int(new.tripped_at)) == after
    assert {leaf.dtype for leaf in (new.step, new.skipped, new.streak, new.tripped_at)} == {jnp.dtype("int32")}


def test_a_fresh_carry_is_a_tree_of_arrays() -> None:
    leaves = jax.tree.leaves(fresh_carry({"x": jnp.ones(3)}))
    assert [leaf.tolist() for leaf in leaves] == [[1, 1, 1], 0, 0, 0, -1]


@pytest.mark.parametrize("limits", [{"max_consecutive": 0}, {"max_total": 1.5}, {"max_total": True}])
def test_limits_of_skips_are_whole_numbers(limits: Any) -> None:
    with pytest.raises(ParameterError, match=next(iter(limits))):
        Policy(skip=True, **limits)
