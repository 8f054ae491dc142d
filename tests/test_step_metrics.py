from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tasks.step_metrics import StepMetrics, layout_of, pack

METRICS = {
    "loss": jnp.float32(0.1), "grad_sq": jnp.array([1.5, jnp.inf, jnp.nan]), "applied": jnp.bool_(True),
    "table": jnp.arange(6, dtype=jnp.int32).reshape(2, 3), "half": jnp.bfloat16(0.1),
}  # fmt: skip


def test_each_metric_comes_back_with_its_bits_shape_and_dtype() -> None:
    made = StepMetrics.of(METRICS)
    assert list(made) == list(METRICS)
    assert len(made) == 5
    for name, value in METRICS.items():
        got, wanted = made[name], np.asarray(value)
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert got.tobytes() == wanted.tobytes()


def test_the_layout_is_known_before_there_are_numbers() -> None:
    layout = layout_of(METRICS)
    assert [slot.first for slot in layout.values()] == [0, 1, 4, 5, 11]
    assert pack(METRICS).shape == (12,)


def test_it_is_read_only_and_what_is_not_there_is_a_key_error() -> None:
    made = StepMetrics.of(METRICS)
    with pytest.raises(KeyError):
        made["accuracy"]
    with pytest.raises(TypeError):
        made["loss"] = np.zeros(())  # type: ignore[index]
    made["grad_sq"][0] = 9.0
    assert made["grad_sq"][0] == 1.5
