"""Intervals by the bootstrap: examples are drawn anew, with replacement, and the metric is taken of each draw.

A draw is a row of counts, how often each example occurs in it, so that a metric of a thousand draws is a few operations
on whole arrays. The ends of an interval are percentiles (Efron & Tibshirani 1993, An Introduction to the Bootstrap,
chapter 13). All of it is a function of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

CONFIDENCE = 0.95
MOST, LEAST, WORK = 1000, 200, 10**8
"""Draws: as many as MOST, fewer where they would need more than WORK counts, never fewer than LEAST."""
CHUNK = 2_000_000  # counts at a time, 4 bytes each

Measure = Callable[[np.ndarray], np.ndarray]
"""A metric of draws: from counts float32 [draws, N] to float [draws]; NaN where it is undefined."""


def draws_for(examples: int, classes: int = 1) -> int:
    """How many draws to make of so many examples."""
    return int(np.clip(WORK // max(examples * classes, 1), LEAST, MOST))


def draws(examples: int, number: int, seed: int) -> Iterator[np.ndarray]:
    """Draws in blocks, float32 [block, examples]: how often each example occurs; every row sums to `examples`."""
    random = np.random.default_rng(seed)
    rows = max(1, CHUNK // examples)
    for start in range(0, number, rows):
        block = min(rows, number - start)
        picked = random.integers(0, examples, (block, examples))
        picked += np.arange(block)[:, None] * examples
        yield np.bincount(picked.reshape(-1), minlength=block * examples).reshape(block, -1).astype(np.float32)


def resampled(measures: Mapping[str, Measure], examples: int, number: int, seed: int) -> dict[str, np.ndarray]:
    """Each metric of the same draws, float64 [number]; what is undefined in a draw is NaN there."""
    made: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    for counts in draws(examples, number, seed):
        for name, measure in measures.items():
            made[name].append(np.asarray(measure(counts), np.float64))
    return {name: np.concatenate(blocks) for name, blocks in made.items()}


def interval(values: np.ndarray, confidence: float = CONFIDENCE) -> list[float] | None:
    """The percentile interval, [low, high]; None if the metric is undefined in more than half of the draws.

    Args:
        values: float [draws].
        confidence: Share of the draws between the ends.
    """
    known = values[np.isfinite(values)]
    if 2 * len(known) <= len(values):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, (tail, 1 - tail))
    return [float(low), float(high)]


def mean(values: np.ndarray) -> Measure:
    """The measure of a mean: of one number an example, [N]."""
    numbers = np.asarray(values, np.float32)
    return lambda counts: (counts @ numbers).astype(np.float64) / counts.shape[1]
