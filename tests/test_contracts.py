from __future__ import annotations

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

from datasets.errors import ContractError, SchemaError
from datasets.schema import Feature
from tasks.contracts import (
    array_contract,
    batch_contract,
    check_batch,
    cross_entropy,
    equal_prefix,
    image_contract,
    surfacing,
)

FEATURES = {
    "image": Feature("float32", (2, 2)),
    "unit": Feature("float32", low=0, high=1),
    "label": Feature("int32", classes=("a", "b", "c")),
}


def good() -> dict[str, Any]:
    return {
        "image": np.arange(16, dtype=np.float32).reshape(4, 2, 2),
        "unit": np.linspace(0, 1, 4, dtype=np.float32),
        "label": np.array([0, 1, 2, 0], np.int32),
    }


@pytest.fixture
def no_chex() -> Iterator[None]:
    chex.disable_asserts()
    yield
    chex.enable_asserts()


def test_a_good_batch_passes() -> None:
    check_batch(good(), FEATURES, 4)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"image": good()["image"].tolist()}, {"field": "image", "got": "list", "expected": "float32[4,2,2]"}),
        ({"image": jnp.zeros((4, 2, 2))}, {"field": "image", "expected": "float32[4,2,2]"}),
        ({"image": good()["image"][:1]}, {"field": "image", "got": "float32[1,2,2]", "expected": "float32[4,2,2]"}),
        ({"image": good()["image"].astype(np.uint8)}, {"got": "uint8[4,2,2]", "expected": "float32[4,2,2]"}),
        ({"image": good()["image"].astype(">f4")}, {"got": ">f4[4,2,2]", "expected": "float32[4,2,2]"}),
        ({"label": good()["label"][:, None]}, {"field": "label", "got": "int32[4,1]", "expected": "int32[4]"}),
        ({"weight": np.ones(4)}, {"unknown": "weight"}),
    ],
)
def test_a_wrong_structure_is_named(change: dict[str, Any], facts: dict[str, str]) -> None:
    with pytest.raises(ContractError) as caught:
        check_batch({**good(), **change}, FEATURES, 4, step=7)
    assert facts.items() <= caught.value.facts.items()
    assert caught.value.facts["step"] == 7


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ContractError) as caught:
        check_batch({"image": good()["image"], "unit": good()["unit"]}, FEATURES, 4)
    assert caught.value.facts["missing"] == "label"


@pytest.mark.parametrize(
    ("field", "row", "value", "expected"),
    [
        ("image", 2, np.nan, "finite values"),
        ("image", 3, -np.inf, "finite values"),
        ("unit", 1, np.nan, "0 <= unit <= 1"),
        ("unit", 1, np.inf, "0 <= unit <= 1"),
        ("unit", 3, 1.5, "0 <= unit <= 1"),
        ("label", 2, 3, "0 <= label <= 2"),
        ("label", 1, -1, "0 <= label <= 2"),
    ],
)
def test_a_bad_value_is_named_with_its_record(field: str, row: int, value: float, expected: str) -> None:
    batch = good()
    batch[field][row] = value
    with pytest.raises(SchemaError) as caught:
        check_batch(batch, FEATURES, 4, step=9, ids=["r0", "r1", "r2", "r3"])
    facts = caught.value.facts
    assert (facts["field"], facts["row"], facts["record"], facts["step"]) == (field, row, f"r{row}", 9)
    assert facts["expected"] == expected
    assert facts["got"] == value or np.isnan(value)
    assert "1 bad rows of 4" in facts["found"]


def test_labels_that_start_at_one_are_recognised() -> None:
    with pytest.raises(SchemaError, match="start at 1"):
        check_batch({**good(), "label": np.array([1, 2, 3, 1], np.int32)}, FEATURES, 4)


def test_great_finite_values_pass() -> None:
    check_batch({**good(), "image": np.full((4, 2, 2), 1e30, np.float32)}, FEATURES, 4)  # squares overflow


@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", 2**32 + 3), ("int64", -(2**31) - 1), ("uint64", 2**32), ("float64", 1e300)]
)
def test_what_the_device_would_cut_to_32_bits_is_refused(dtype: str, value: float) -> None:
    column = np.ones(4, dtype)
    check_batch({"n": column}, {"n": Feature(dtype)}, 4)
    column[2] = value
    with pytest.raises(SchemaError) as caught:
        check_batch({"n": column}, {"n": Feature(dtype)}, 4)
    assert (caught.value.facts["row"], caught.value.facts["got"]) == (2, value)


def test_integers_without_bounds_and_booleans_pass() -> None:
    columns = {"n": np.array([-5, 7], np.int32), "b": np.array([True, False])}
    check_batch(columns, {"n": Feature("int32"), "b": Feature("bool")}, 2)


BROKEN = [
    lambda: array_contract("model", "x", jnp.zeros((4, 1)), (4,)),
    lambda: array_contract("model", "x", jnp.zeros((4, 3)), (None, 2)),
    lambda: array_contract("model", "x", jnp.zeros(4, jnp.bfloat16), (4,), jnp.float32),
    lambda: array_contract("model", "x", [1.0, 2.0], (2,)),
    lambda: array_contract("model", "x", 1.0, ()),
    lambda: image_contract("model", jnp.zeros((8, 28, 28)), (28, 28, 1)),
    lambda: image_contract("model", jnp.zeros((8, 28, 28, 1), jnp.uint8), (28, 28, 1)),
    lambda: equal_prefix("step", {"a": jnp.zeros((4, 2)), "b": jnp.zeros(3)}),
    lambda: equal_prefix("step", {"a": jnp.zeros(4), "b": jnp.zeros(())}),
    lambda: batch_contract("step", {"a": jnp.zeros(4)}, {"a": Feature("float32"), "b": Feature("float32")}, 4),
    lambda: batch_contract("step", {"a": jnp.zeros(4)}, {"a": Feature("int32")}, 4),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros((32, 1), jnp.int32)),
    lambda: cross_entropy(jnp.zeros((1, 10)), jnp.zeros(32, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(1, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros((32, 10), jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(32, jnp.float32)),
    lambda: cross_entropy(jnp.zeros((32, 10), jnp.int32), jnp.zeros(32, jnp.int32)),
    lambda: cross_entropy(jnp.zeros((32, 10)), jnp.zeros(32, jnp.int32), mask=jnp.ones((32, 1))),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_contract_raises(broken: Any) -> None:
    with pytest.raises(ContractError):
        broken()


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.usefixtures("no_chex")
def test_a_broken_contract_raises_without_chex(broken: Any) -> None:
    with pytest.raises(ContractError):
        broken()


def test_contracts_hold_under_python_o() -> None:
    code = """
import chex, numpy as np, jax.numpy as jnp
from datasets.errors import ContractError, SchemaError
from datasets.schema import Feature
from tasks.contracts import check_batch, array_contract
chex.disable_asserts()
caught = 0
for column in (np.array([np.nan], np.float32), np.zeros(1, np.uint8), np.zeros(2, np.float32), [0.0]):
    try:
        check_batch({"x": column}, {"x": Feature("float32")}, 1)
    except (ContractError, SchemaError):
        caught += 1
try:
    array_contract("loss", "x", jnp.zeros((4, 1)), (4,))
except ContractError:
    caught += 1
print(__debug__, caught)
"""
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-O", "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "5"]


def test_a_chex_failure_in_a_users_function_becomes_a_contract_error() -> None:
    def loss(x: jax.Array) -> jax.Array:
        chex.assert_rank(x, 2)
        return x.sum()

    with pytest.raises(ContractError) as caught:
        jax.jit(surfacing("my loss", loss))(jnp.zeros(3))
    assert "rank" in caught.value.facts["chex"]


def test_contracts_leave_the_program_as_it_is() -> None:
    def bare(x: jax.Array) -> jax.Array:
        return x * 2

    def stated(x: jax.Array) -> jax.Array:
        image_contract("model", x, (2, 2, 1))
        return x * 2

    x = jnp.zeros((3, 2, 2, 1))
    assert str(jax.make_jaxpr(bare)(x)) == str(jax.make_jaxpr(stated)(x))


def logits_and_labels() -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(jax.random.key(0), (6, 4)), jnp.array([0, 1, 2, 3, 1, 0])


def test_cross_entropy_is_that_of_optax() -> None:
    logits, labels = logits_and_labels()
    plain = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    np.testing.assert_allclose(cross_entropy(logits, labels), plain, rtol=1e-6)
    smooth = optax.softmax_cross_entropy(logits, optax.smooth_labels(jax.nn.one_hot(labels, 4), 0.1)).mean()
    np.testing.assert_allclose(cross_entropy(logits, labels, label_smoothing=0.1), smooth, rtol=1e-6)


def test_masked_rows_count_nothing_whatever_they_hold() -> None:
    logits, labels = logits_and_labels()
    mask = jnp.array([True, True, True, False, False, True])
    rows = np.flatnonzero(mask)
    spoiled, wrong = logits.at[3:5].set(jnp.nan), labels.at[3].set(99)
    np.testing.assert_allclose(
        cross_entropy(spoiled, wrong, mask=mask), cross_entropy(logits[rows], labels[rows]), rtol=1e-6
    )


@pytest.mark.parametrize("label", [4, 5, -1, -4])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_label_out_of_range_gives_nan(label: int, smoothing: float) -> None:
    logits, labels = logits_and_labels()
    assert jnp.isnan(cross_entropy(logits, labels.at[2].set(label), label_smoothing=smoothing))
    assert jnp.isfinite(cross_entropy(logits, labels, label_smoothing=smoothing))
