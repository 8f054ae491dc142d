from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from datasets.errors import ContractError, SchemaError
from datasets.schema import Feature
from tasks.batch_check import BatchCheck

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


def test_a_good_batch_passes() -> None:
    BatchCheck(FEATURES, 4)(good())


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
        BatchCheck(FEATURES, 4)({**good(), **change}, step=7)
    assert facts.items() <= caught.value.facts.items()
    assert caught.value.facts["step"] == 7


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ContractError) as caught:
        BatchCheck(FEATURES, 4)({"image": good()["image"], "unit": good()["unit"]})
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
        BatchCheck(FEATURES, 4)(batch, step=9, ids=lambda: ["r0", "r1", "r2", "r3"])
    facts = caught.value.facts
    assert (facts["field"], facts["row"], facts["record"], facts["step"]) == (field, row, f"r{row}", 9)
    assert facts["expected"] == expected
    assert facts["got"] == value or np.isnan(value)
    assert "1 bad rows of 4" in facts["found"]


def test_labels_that_start_at_one_are_recognised() -> None:
    with pytest.raises(SchemaError, match="start at 1"):
        BatchCheck(FEATURES, 4)({**good(), "label": np.array([1, 2, 3, 1], np.int32)})


def test_great_finite_values_pass() -> None:
    BatchCheck(FEATURES, 4)({**good(), "image": np.full((4, 2, 2), 1e30, np.float32)})  # squares overflow


@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", 2**32 + 3), ("int64", -(2**31) - 1), ("uint64", 2**32), ("float64", 1e300)]
)
def test_what_the_device_would_cut_to_32_bits_is_refused(dtype: str, value: float) -> None:
    column = np.ones(4, dtype)
    BatchCheck({"n": Feature(dtype)}, 4)({"n": column})
    column[2] = value
    with pytest.raises(SchemaError) as caught:
        BatchCheck({"n": Feature(dtype)}, 4)({"n": column})
    assert (caught.value.facts["row"], caught.value.facts["got"]) == (2, value)


def test_integers_without_bounds_and_booleans_pass() -> None:
    columns = {"n": np.array([-5, 7], np.int32), "b": np.array([True, False])}
    BatchCheck({"n": Feature("int32"), "b": Feature("bool")}, 2)(columns)


def test_contracts_hold_under_python_o() -> None:
    code = """
import chex, numpy as np, jax.numpy as jnp
from datasets.errors import ContractError, SchemaError
from datasets.schema import Feature
from tasks.batch_check import BatchCheck
from tasks.contracts import array_contract
chex.disable_asserts()
caught = 0
for column in (np.array([np.nan], np.float32), np.zeros(1, np.uint8), np.zeros(2, np.float32), [0.0]):
    try:
        BatchCheck({"x": Feature("float32")}, 1)({"x": column})
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
