from __future__ import annotations

import numpy as np
import pytest

from tasks import intervals
from tasks.intervals import LEAST, MOST, draws, draws_for, interval, mean, resampled


def test_every_draw_has_as_many_examples_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "CHUNK", 70)  # blocks of 7, the last one shorter
    blocks = list(draws(10, 24, seed=1))
    assert [block.shape for block in blocks] == [(7, 10)] * 3 + [(3, 10)]
    counts = np.concatenate(blocks)
    assert (counts.sum(axis=1) == 10).all()
    assert (counts == counts.round()).all()
    assert len(np.unique(counts, axis=0)) == 24
    assert counts.max() > 1


def test_draws_are_those_of_the_seed() -> None:
    first, again, other = (np.concatenate(list(draws(50, 30, seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_every_example_is_drawn_as_often_as_another() -> None:
    counts = np.concatenate(list(draws(20, 4000, 0)))
    assert np.abs(counts.mean(axis=0) - 1).max() < 0.08
    assert counts.var() == pytest.approx(0.95, abs=0.03)  # of a binomial distribution: n p (1 - p)


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(0).normal(3, 2, 2000)
    made = interval(resampled({"m": mean(values)}, 2000, 1000, 0)["m"])
    assert made is not None
    half = 1.96 * values.std() / np.sqrt(2000)
    assert made[0] == pytest.approx(values.mean() - half, abs=0.012)
    assert made[1] == pytest.approx(values.mean() + half, abs=0.012)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        made = interval(resampled({"m": mean(random.random(200) < 0.8)}, 200, 200, seed)["m"])
        assert made is not None
        covered += made[0] <= 0.8 <= made[1]
    assert 180 <= covered <= 198


def test_undefined_draws_are_left_out_and_many_of_them_say_nothing() -> None:
    values = np.arange(101.0)
    assert interval(values, 0.8) == [pytest.approx(10), pytest.approx(90)]
    assert interval(np.concatenate([values, np.full(50, np.nan)]), 0.8) == [pytest.approx(10), pytest.approx(90)]
    assert interval(np.concatenate([values, np.full(101, np.nan)])) is None
    assert interval(np.full(3, np.nan)) is None


@pytest.mark.parametrize(
    ("examples", "classes", "number"),
    [(10, 2, MOST), (10_000, 10, MOST), (200_000, 1, 500), (1_000_000, 2, LEAST), (0, 0, MOST)],
)
def test_many_examples_are_drawn_less_often(examples: int, classes: int, number: int) -> None:
    assert draws_for(examples, classes) == number
