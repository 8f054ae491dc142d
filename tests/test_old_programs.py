from __future__ import annotations

import itertools
import weakref

import jax
import jax.numpy as jnp
import pytest

from tasks import old_programs
from tasks.old_programs import KEPT, bounded


class Model:
    """What a run's program holds on to."""


def run_once() -> weakref.ref[Model]:
    model = Model()

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        assert model is not None
        return x + 1

    program(jnp.zeros(3)).block_until_ready()
    return weakref.ref(model)


def test_after_some_runs_nothing_of_them_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_programs, "_runs", itertools.count(1))
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda clear=jax.clear_caches: (cleared.append(1), clear()))
    models = []
    for number in range(1, 2 * KEPT + 1):
        with bounded():
            models.append(run_once())
        assert len(cleared) == number // KEPT
    assert [model() for model in models] == [None] * (2 * KEPT)


def test_a_run_that_fails_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_programs, "_runs", itertools.count(KEPT))
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    with pytest.raises(ValueError, match="x"), bounded():
        raise ValueError("x")
    assert cleared == [1]
