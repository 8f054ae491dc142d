"""An order of examples that reads whole blocks: the blocks are shuffled and laid end to end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tasks.permutation import permute, unpermute

_MOST_SHUFFLED = 1 << 16  # blocks whose order is worth keeping


def quotient(numbers: np.ndarray, divisor: int) -> np.ndarray:
    """Gives numbers // divisor for whole numbers from 0 on; a shift, twice as fast, if it is a power of 2."""
    return numbers // divisor if divisor & (divisor - 1) else numbers >> (divisor.bit_length() - 1)


@dataclass(frozen=True)
class BlockOrder:
    """Blocks of consecutive examples, shuffled and laid end to end; the last, short one moves like the others.

    Attributes:
        size: Number of examples.
        block: Examples of a block.
        seed: Of the shuffle.
    """

    size: int
    block: int
    seed: int

    @property
    def _count(self) -> int:
        return -(-self.size // self.block)

    @cached_property
    def _gap(self) -> tuple[int, int]:
        """Where the last block lies, and by how many examples it is shorter than the others."""
        place = int(unpermute(np.array(self._count - 1), self._count, self.seed))
        return place, self._count * self.block - self.size

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Gives the examples, int64, at the positions start <= position < stop."""
        return self.stretch(start, stop).ids(np.arange(stop - start))

    def stretch(self, start: int, stop: int) -> Stretch:
        """Looks the blocks up that lie at the positions start <= position < stop."""
        place, short = self._gap
        # Behind the short block everything has moved up; adding what it lacks makes all blocks equally long.
        behind = (place + 1) * self.block - short
        first, last = ((at + (short if at >= behind else 0)) // self.block for at in (start, stop - 1))
        blocks = np.arange(first, last + 1)
        moved = self._shuffled(first, last + 1) * self.block - blocks * self.block
        moved[blocks > place] += short
        into = start + (short if start >= behind else 0) - first * self.block
        return Stretch(moved + start, self.block, into, behind - start if start < behind < stop else None, short)

    def _shuffled(self, first: int, end: int) -> np.ndarray:
        if self._count > _MOST_SHUFFLED:
            return permute(np.arange(first, end), self._count, self.seed)
        return self._all_shuffled[first:end]

    @cached_property
    def _all_shuffled(self) -> np.ndarray:
        return permute(np.arange(self._count), self._count, self.seed)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where examples lie; the reverse of `ids`."""
        place, short = self._gap
        at = unpermute(ids // self.block, self._count, self.seed)
        return at * self.block + ids % self.block - np.where(at > place, short, 0)


@dataclass(frozen=True)
class Stretch:
    """Positions in a row, counted from 0, with what leads from them to examples: small enough to look up in any order.

    Attributes:
        moved: From a position to its example, by the block that it lies in: int64 [blocks].
        block: Examples of a block.
        into: Where in its block the first position lies.
        behind: Position behind the short block, if that lies inside.
        short: What that block lacks.
    """

    moved: np.ndarray
    block: int
    into: int
    behind: int | None
    short: int

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """Gives the examples, int64, at some of its positions, whole numbers of any size."""
        at = positions + np.int64(self.into) if self.into else positions  # of 8 bytes: the sum may need more than 2
        if self.behind is not None:
            at = at + (positions >= self.behind) * np.int64(self.short)
        ids = self.moved.take(quotient(at, self.block), mode="clip")  # none is outside
        ids += positions
        return ids
