"""Single findings; how they come to be is tested in test_budget.py."""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tasks.autopsy import Signature, autopsy, differ, signature


def of(x: Any) -> Signature:
    return signature(inspect.signature(lambda x: x), (x,), {}, on_host=True)


@pytest.mark.parametrize(
    ("old", "new", "change", "cause"),
    [
        (np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32), "x: float32[4,3] -> float32[2,3]", "short last"),
        (np.zeros(3, np.float32), np.zeros(3, np.int32), "x: float32[3] -> int32[3]", "another dtype"),
        (np.zeros((4, 3), np.float32), np.zeros((4, 5), np.float32), "float32[4,5]", "another shape"),
        (np.zeros(2, np.float32), [0.0, 0.0], "2 separate values", "is a list"),
    ],
)
def test_what_changed_and_why(old: Any, new: Any, change: str, cause: str) -> None:
    changes, why, cure = autopsy([of(old)], of(new))
    assert change in "; ".join(changes)
    assert cause in why
    assert cure


def test_the_nearest_earlier_call_is_the_one_to_compare_with() -> None:
    earlier = [of({"a": np.zeros(9), "b": np.zeros(9)}), of({"a": np.zeros(4), "b": np.zeros(5)})]
    changes, _, _ = autopsy(earlier, of({"a": np.zeros(2), "b": np.zeros(5)}))
    assert changes == ["x/a: float32[4] -> float32[2]"]


def test_equal_calls_do_not_differ() -> None:
    assert not differ(of(jnp.ones(2)), of(jnp.zeros(2)))
    assert differ(of(jnp.ones(2)), of(jnp.ones(3)))
