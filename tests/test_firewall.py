"""What the host's side of the firewall refuses; its verdicts are tested in test_step.py and test_capsule.py."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest
from step_cases import bad_batch, batch, make_step

from datasets.errors import NonFiniteError, ParameterError, TrainingError
from tasks.carry import Policy
from tasks.firewall import Firewall


def test_every_is_a_whole_number() -> None:
    with pytest.raises(ParameterError, match="every"):
        Firewall(make_step(), every=0)


def test_steps_may_not_go_by_unchecked_and_a_skip_is_told_once(tmp_path: Path) -> None:
    step = make_step(policy=Policy(skip=True))
    firewall, carry = Firewall(step, every=2, folder=tmp_path), step.initial_carry()
    for index, columns in enumerate([batch(0), bad_batch(1), batch(2)]):
        carry, metrics = step(carry, columns)
        firewall.observe(index, columns, lambda: list(range(8)), metrics)
    with pytest.raises(TrainingError, match="went by unchecked"):
        firewall.observe(3, batch(3), lambda: list(range(8)), {})
    assert [skip.verdict.step for skip in firewall.check(carry)] == [1]
    assert firewall.check(carry, now=True) == []
    assert [skip.records for skip in firewall.skips] == [tuple(range(8))]
    assert not list(tmp_path.iterdir())


def test_who_knows_that_batches_were_applied_need_not_look(tmp_path: Path) -> None:
    step = make_step(policy=Policy(skip=True))
    firewall, carry = Firewall(step, every=2, folder=tmp_path), step.initial_carry()
    for index, columns in enumerate([batch(0), batch(1), batch(2), bad_batch(3)]):
        carry, metrics = step(carry, columns)
        firewall.observe(index, columns, lambda: list(range(8)), metrics)
        if index == 2:
            firewall.passed(1)
    applied = {"applied": jnp.bool_(True)}
    firewall.observe(4, batch(4), lambda: list(range(8)), applied)
    with pytest.raises(TrainingError, match="went by unchecked"):
        firewall.observe(5, batch(5), lambda: list(range(8)), applied)
    assert [skip.verdict.step for skip in firewall.check(carry, now=True)] == [3]


def test_a_trip_from_before_is_no_batch_of_ours() -> None:
    step = make_step()
    carry, _ = step(step.initial_carry(), bad_batch(0))
    with pytest.raises(NonFiniteError, match="isn't in memory"):
        Firewall(step).check(carry, now=True)
