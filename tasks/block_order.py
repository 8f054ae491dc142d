"""An order of examples that reads whole blocks: the blocks are shuffled and laid end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.permutation import permute, unpermute


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

    def _gap(self) -> tuple[int, int]:
        """Where the last block lies, and by how many examples it is shorter than the others."""
        place = int(unpermute(np.array(self._count - 1), self._count, self.seed))
        return place, self._count * self.block - self.size

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Gives the examples, int64, at the positions start <= position < stop."""
        place, short = self._gap()
        # Behind the short block everything has moved up; adding what it lacks makes all blocks equally long.
        first, last = ((at + (short if at >= (place + 1) * self.block - short else 0)) // self.block
                       for at in (start, stop - 1))  # fmt: skip
        blocks = np.arange(first, last + 2)
        begin = blocks * self.block - np.where(blocks > place, short, 0)
        moved = permute(blocks[:-1], self._count, self.seed) * self.block - begin[:-1]
        ids = np.repeat(moved, np.diff(begin.clip(start, stop)))
        ids += np.arange(start, stop)
        return ids

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where examples lie; the reverse of `ids`."""
        place, short = self._gap()
        at = unpermute(ids // self.block, self._count, self.seed)
        return at * self.block + ids % self.block - np.where(at > place, short, 0)
