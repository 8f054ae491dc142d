from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from datasets.moments import ExactSum, Moments


def values(rows: int = 3_001) -> np.ndarray:
    """Columns that a plain sum gets wrong: far from 0, of all magnitudes, subnormal."""
    random = np.random.default_rng(0)
    wild = random.standard_normal(rows) * 10.0 ** random.integers(-30, 30, rows)
    return np.stack([random.normal(1e9, 1, rows), wild, random.normal(0, 1e-42, rows)], axis=1).astype(np.float32)


def test_sums_are_rounded_once() -> None:
    x = values().astype(np.float64)
    total = ExactSum(3)
    total.add(x)
    total.add(-x[:1000])
    assert [float(t) for t in total.totals()] == [math.fsum(x[1000:, i]) for i in range(3)]


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_no_order_and_no_cut_changes_a_bit(cut: int) -> None:
    x = values()
    one, other = Moments(3), Moments(3)
    one.add(x)
    for start in range(0, len(x), cut):
        other.add(x[np.random.default_rng(1).permutation(len(x))][start : start + cut])
    assert np.array(one.mean_and_std()).tobytes() == np.array(other.mean_and_std()).tobytes()


def test_they_are_those_of_exact_fractions() -> None:
    x = values(200)
    moments = Moments(3)
    moments.add(x)
    means, deviations = moments.mean_and_std()
    for i in range(3):
        column = [float(v) for v in x[:, i]]
        assert means[i] == math.fsum(column) / len(column) or means[i] == pytest.approx(statistics.fmean(column))
        assert deviations[i] == pytest.approx(statistics.pstdev(column), rel=1e-12)
    # a sum of float32 squares would have no digit right here
    assert deviations[0] == pytest.approx(np.std(x[:, 0].astype(np.float64)), rel=1e-9)


def test_a_constant_has_no_deviation() -> None:
    moments = Moments(1)
    moments.add(np.full((1000, 1), 0.1, np.float32))
    means, deviations = moments.mean_and_std()
    assert (float(means[0]), float(deviations[0])) == (float(np.float32(0.1)), 0.0)


def test_large_blocks_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = values().astype(np.float64)
    whole, parts = ExactSum(3), ExactSum(3)
    whole.add(x)
    monkeypatch.setattr("datasets.moments.MOST_AT_ONCE", 30)
    parts.add(x)
    assert parts.totals() == whole.totals()
