"""Random numbers of the examples of a batch, for transforms that are written for whole batches."""

from __future__ import annotations

import numpy as np

from datasets.augment import normal_quantiles
from datasets.errors import ParameterError
from tasks.permutation import GOLDEN, mix

_DRAWS, _TRANSFORMS = 4, 5  # what a sub-seed is for; 1 to 3 are in `order.py`


def uniform(seed: int, epoch: int, ids: np.ndarray, draws: int) -> np.ndarray:
    """Gives random numbers that depend on the seed, the epoch and the example, and on nothing else.

    The same example gets the same numbers in any batch, slot, reader or process: a counter-based generator (as Salmon
    et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with SplitMix64's finaliser.

    Args:
        seed: Of the training.
        epoch: Counted from 0.
        ids: int64 [N], which examples.
        draws: Numbers an example.

    Returns:
        float32 [N, draws], 0 <= u < 1, multiples of 2**-24.
    """
    counter = ids.astype(np.uint64)[:, None] * np.uint64(draws) + np.arange(draws, dtype=np.uint64)
    x = counter * np.uint64(GOLDEN) + np.uint64(mix(seed, epoch, _DRAWS))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


class ExampleRandom:
    """Draws in the manner of `numpy.random.Generator`, a row for each example of a batch.

    What an example gets depends on the seed, the epoch, the example, the transform's place and the number of the call,
    and on nothing else: the same in any batch, slot, reader, thread or worker. Make the same calls for every batch, and
    choose among rows by `np.where` instead of calling less often.

    Args:
        seed: Of the training.
        epoch: Counted from 0.
        ids: int64 [B], the examples.
        place: Of the transform among the others.

    Example:
        >>> random = ExampleRandom(seed=0, epoch=2, ids=np.array([7, 8]), place=0)
        >>> random.integers(0, 10).shape, random.normal(size=(3, 2)).shape
        ((2,), (2, 3, 2))
    """

    def __init__(self, seed: int, epoch: int, ids: np.ndarray, place: int) -> None:
        self._seed, self._epoch, self._ids, self._place = seed, epoch, ids, place
        self._calls = 0

    def random(self, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Gives float32 [B, *size], 0 <= u < 1, multiples of 2**-24; a size of 3 is one of (3,)."""
        seed = mix(self._seed, _TRANSFORMS, self._place, self._calls)
        self._calls += 1
        shape = (size,) if isinstance(size, int) else size
        draws = int(np.prod(shape, dtype=np.int64))
        return uniform(seed, self._epoch, self._ids, draws).reshape(len(self._ids), *shape)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Gives float32 [B, *size], low <= x < high but for rounding."""
        return np.float32(low) + self.random(size) * np.float32(high - low)

    def integers(self, low: int, high: int | None = None, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Gives int64 [B, *size], low <= n < high; 0 <= n < low if there is no `high`.

        Raises:
            ParameterError: There are none, or more than 2**24, which the 24 random bits can't tell apart.
        """
        low, high = (0, low) if high is None else (low, high)
        if not 0 < high - low <= 1 << 24:
            raise ParameterError("no such range of whole numbers", got=f"{low} ... {high - 1}", expected="1 ... 2**24")
        return low + (self.random(size).astype(np.float64) * (high - low)).astype(np.int64)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Gives float32 [B, *size] of a normal distribution in 65,536 equal pieces, cut at 4.3 times the scale."""
        piece = (self.random(size) * np.float32(1 << 16)).astype(np.int64)
        return np.float32(loc) + np.take(normal_quantiles(), piece) * np.float32(scale)
