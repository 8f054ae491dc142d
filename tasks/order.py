"""The order of examples: a pure function of (size, seed, epoch, step).

Every epoch is one permutation of all examples. It is cut into `size // batch_size` full batches; what is left of
*this epoch's permutation* (fewer than `batch_size` examples, others in each epoch) is dropped, or makes one short batch
more with `drop_remainder=False`. No batch spans two epochs. That is the only rule: steps per epoch, total steps,
schedule length and epoch counter all follow from it.

Nothing here depends on threads, workers, the number of readers or how the data is stored, so a position in training
is one whole number and any step can be computed, or traced back, without replaying the ones before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from datasets.errors import ParameterError, PipelineError
from datasets.schema import check_int
from tasks.block_order import BlockOrder
from tasks.permutation import mix, permute, unpermute

ALGORITHM = 1  # of `mix`, the permutation and the order of blocks: who changes what they give changes this number

_SHUFFLE, _WINDOW, _BLOCKS = 1, 2, 3  # what a sub-seed is for, as in `example_random.py`: equal seeds share no stream


class Sharding(Protocol):
    """Which reader this is: `grain.sharding.ShardOptions(index, count)`, `ShardByJaxProcess()`, or the like."""

    @property
    def shard_index(self) -> int:
        """Which reader, counted from 0."""
        ...

    @property
    def shard_count(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True)
class Order:
    """Which examples each step sees.

    The global batch comes first and is then shared out: reader r of R takes the slots r * B // R <= slot <
    (r + 1) * B // R of every batch, so R readers together give exactly what one reader gives, for any R.

    Attributes:
        size: Number of examples.
        batch_size: Examples of a step, over all readers.
        seed: Of the permutations.
        shuffle: False gives the examples as they are stored, in every epoch.
        reader: Which of the readers this is, counted from 0.
        readers: How many share each batch.
        drop_remainder: False gives what is left of an epoch as a last, short batch.
        window: Positions whose ids are computed at once. Doesn't change the order unless `block` is given.
        block: For data that is read from disk in blocks of this many examples; None for one permutation of everything.
            Otherwise each epoch permutes the blocks, lays them end to end, and permutes the examples within
            each `window` of consecutive positions. So a step touches only blocks of one or two windows, and examples
            of one block stay within a window (or two neighbours) of each other.

    Raises:
        ParameterError: A value has the wrong type or range.
        PipelineError: There are fewer examples than one batch.

    Example:
        >>> order = Order(size=22, batch_size=4, seed=0)
        >>> order.steps_per_epoch, order.total_steps(2), order.epoch(5)
        (5, 10, 1)
    """

    size: int
    batch_size: int
    seed: int
    shuffle: bool = field(default=True, kw_only=True)
    reader: int = field(default=0, kw_only=True)
    readers: int = field(default=1, kw_only=True)
    drop_remainder: bool = field(default=True, kw_only=True)
    window: int = field(default=1 << 16, kw_only=True)
    block: int | None = field(default=None, kw_only=True)
    _recent: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        least = {"size": 0, "batch_size": 1, "seed": 0, "reader": 0, "readers": 1, "window": 1}
        for name, low in least.items():
            check_int(name, getattr(self, name), low)
        if self.block is not None:
            check_int("block", self.block, 1)
        if self.reader >= self.readers:
            raise ParameterError("there is no such reader", got=self.reader, expected=f"0 ... {self.readers - 1}")
        if self.readers > self.batch_size:
            raise ParameterError("more readers than examples in a batch", got=self.readers, expected=self.batch_size)
        if self.size < (self.batch_size if self.drop_remainder else 1):
            raise PipelineError(
                f"{self.size} records < batch size {self.batch_size}: 0 steps",
                cure=f"a batch size of at most {self.size}" if self.size else "a split that has records",
            )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_recent": {}}

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch."""
        return self.size // self.batch_size if self.drop_remainder else -(-self.size // self.batch_size)

    @property
    def share(self) -> slice:
        """Slots of the global batch that this reader gives."""
        return slice(self.reader * self.batch_size // self.readers, (self.reader + 1) * self.batch_size // self.readers)

    @property
    def identity(self) -> dict[str, object]:
        """What decides the order, as JSON; the readers don't."""
        identity: dict[str, object] = {
            "algorithm": ALGORITHM, "size": self.size, "batch_size": self.batch_size, "seed": self.seed,
            "shuffle": self.shuffle, "block": self.block,
        }  # fmt: skip
        identity |= {} if self.drop_remainder else {"drop_remainder": False}
        return identity | ({"window": self.window} if self.block is not None else {})

    def shared(self, sharding: Sharding) -> Order:
        """The same order for one of several readers.

        Args:
            sharding: Such as `grain.sharding.ShardByJaxProcess()`, or `ShardOptions(index, count)`. Its
                `drop_remainder` doesn't matter: what is shared out are the slots of a batch, which all exist.
        """
        return replace(self, reader=sharding.shard_index, readers=sharding.shard_count)

    def total_steps(self, epochs: int) -> int:
        """Steps in that many epochs."""
        return epochs * self.steps_per_epoch

    def epoch(self, step: int) -> int:
        """Epoch of a step, both counted from 0."""
        return step // self.steps_per_epoch

    def ids(self, step: int) -> tuple[int, np.ndarray]:
        """Gives the examples of a step; any step from 0 on, so endless training needs nothing else.

        Returns:
            The epoch, and int64 [share of the batch] ids in the order of the batch's slots, to be read only.
        """
        check_int("step", step, 0)
        epoch, place = divmod(step, self.steps_per_epoch)
        start, share = place * self.batch_size, self.share
        return epoch, self._ids_at(epoch, start + share.start, min(start + share.stop, self.size))

    def ids_of_several(self, step: int, count: int) -> tuple[int, np.ndarray]:
        """Gives the examples of several steps of one epoch, end to end, at about the cost of one step.

        Returns:
            The epoch, and int64 [count * share of the batch] ids; of fewer steps than `count` where the epoch ends.
        """
        count = min(count, self.steps_per_epoch - step % self.steps_per_epoch)
        if self.readers > 1:  # whose shares aren't next to each other
            return self.epoch(step), np.concatenate([self.ids(at)[1] for at in range(step, step + count)])
        check_int("step", step, 0)
        epoch, place = divmod(step, self.steps_per_epoch)
        return epoch, self._ids_at(epoch, place * self.batch_size, min((place + count) * self.batch_size, self.size))

    def steps_of(self, example_id: int, epochs: int) -> list[tuple[int, int]]:
        """Gives every (step, slot of the global batch) that sees an example within the first epochs.

        An epoch in whose dropped remainder the example falls is absent.
        """
        check_int("example_id", example_id, 0)
        if example_id >= self.size:
            raise ParameterError("there is no such example", got=example_id, expected=f"0 ... {self.size - 1}")
        places = ((epoch, self._position(epoch, example_id)) for epoch in range(epochs))
        return [
            (epoch * self.steps_per_epoch + position // self.batch_size, position % self.batch_size)
            for epoch, position in places
            if position < self.steps_per_epoch * self.batch_size  # always, where the remainder isn't dropped
        ]

    def _ids_at(self, epoch: int, start: int, stop: int) -> np.ndarray:
        if start >= stop:  # this reader's share of a short batch may be nothing
            return np.zeros(0, np.int64)
        if not self.shuffle:
            return np.arange(start, stop)
        parts = []
        for window in range(start // self.window, (stop - 1) // self.window + 1):
            first = window * self.window
            parts.append(self._window(epoch, window)[max(start - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _window(self, epoch: int, window: int) -> np.ndarray:
        recent = self._recent
        if (epoch, window) not in recent:
            first, last = window * self.window, min(self.size, (window + 1) * self.window)
            if self.block is None:
                made = permute(np.arange(first, last), self.size, mix(self.seed, epoch, _SHUFFLE))
            else:
                seed, small = mix(self.seed, epoch, _WINDOW, window), np.min_scalar_type(last - first)
                inside = permute(np.arange(last - first, dtype=small), last - first, seed)
                made = self._blocks(epoch).stretch(first, last).ids(inside)
            if len(recent) >= 4:
                recent.clear()
            made.flags.writeable = False  # parts of it are given away
            recent[epoch, window] = made
            return made
        return recent[epoch, window]

    def _position(self, epoch: int, example_id: int) -> int:
        if not self.shuffle:
            return example_id
        if self.block is None:
            return int(unpermute(np.array(example_id), self.size, mix(self.seed, epoch, _SHUFFLE)))
        window, inside = divmod(int(self._blocks(epoch).positions(np.array(example_id))), self.window)
        length = min(self.size - window * self.window, self.window)
        seed = mix(self.seed, epoch, _WINDOW, window)
        return window * self.window + int(unpermute(np.array(inside), length, seed))

    def _blocks(self, epoch: int) -> BlockOrder:
        assert self.block is not None  # noqa: S101 - callers look first
        return _blocks(self.size, self.block, mix(self.seed, epoch, _BLOCKS))


_blocks = lru_cache(maxsize=4)(BlockOrder)  # what each has computed once is kept with it
