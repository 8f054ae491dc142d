from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.schema import Feature
from tasks.statistics import MOST_SAMPLED, Distribution, FeatureStatistics


def of(feature: Feature, column: np.ndarray, block: int = 1000) -> dict[str, Any]:
    made = FeatureStatistics(feature)
    for start in range(0, len(column), block):
        made.add(column[start : start + block])
    return made.to_json()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
def test_values_of_one_byte_are_counted_exactly(dtype: str) -> None:
    column = np.random.default_rng(0).integers(-128, 128, (500, 4, 3)).astype(dtype)
    made = of(Feature(dtype, (4, 3)), column, 77)
    wide = column.astype(float)
    assert (made["count"], made["min"], made["max"], made["size"]) == (6000, wide.min(), wide.max(), [4, 3])
    np.testing.assert_allclose([made["mean"], made["std"]], [wide.mean(), wide.std()])
    expected = np.quantile(wide, [0.05, 0.5, 0.99], method="inverted_cdf")
    assert [made["quantiles"][q] for q in ("0.05", "0.5", "0.99")] == expected.tolist()
    assert sum(made["shares"]) == pytest.approx(1)


def test_small_columns_have_exact_quantiles_number_by_number() -> None:
    column = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32) * [1, 10, 100]
    made = of(Feature("float32", (3,)), column.astype(np.float32), 101)
    for i in range(3):
        expected = np.quantile(column[:, i].astype(np.float32), 0.25, method="inverted_cdf")
        assert made["quantiles"][i]["0.25"] == pytest.approx(float(expected))
        assert len(made["edges"][i]) == 19
        np.testing.assert_allclose(made["shares"][i], np.full(20, 0.05), atol=0.001)


@pytest.mark.parametrize("block", [999, 50_000])
def test_a_sample_is_the_same_for_every_cut_into_blocks_and_near_the_truth(block: int) -> None:
    column = np.random.default_rng(1).exponential(size=50_000)
    made = FeatureStatistics(Feature("float64"))
    other = FeatureStatistics(Feature("float64"))
    for start in range(0, len(column), block):
        made.add(column[start : start + block])
    for start in range(0, len(column), 1234):
        other.add(column[start : start + 1234])
    [one], [two] = made.distributions(), other.distributions()
    np.testing.assert_array_equal(one.values, two.values)
    assert one.weights.sum() == MOST_SAMPLED
    assert made.to_json()["quantiles"]["0.5"] == pytest.approx(np.median(column), rel=0.05)
    assert made.to_json()["max"] == column.max()


def test_bins_of_a_distribution() -> None:
    made = Distribution(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 2]))
    assert made.histogram([1.0, 2.5]) == [0.25, 0.25, 0.5]
    assert made.histogram([]) == [1.0]
    assert made.quantiles([0.0, 0.25, 0.26, 0.5, 0.51, 1.0]) == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert Distribution(np.array([7.0]), np.array([5])).edges() == [7.0]


def test_a_label_counts_classes_beyond_one_byte() -> None:
    made = of(Feature("int32", classes=tuple(map(str, range(1000)))), np.arange(1000, dtype=np.int32))
    assert (made["min"], made["max"], made["mean"]) == (0, 999, 499.5)
