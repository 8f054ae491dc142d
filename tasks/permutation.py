"""Sub-seeds, and permutations without a table of their size: pure functions of a seed and whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from datasets.errors import ParameterError

_WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = 6
_AT_ONCE = 1 << 16  # numbers that are enciphered together: with what lies between, they fit into the processor's cache

_Round = Callable[[np.ndarray], np.ndarray]
"""From one half of each number to what the other half is changed by."""


def _finalise(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


def mix(*numbers: int) -> int:
    """Gives a 64-bit sub-seed for a tuple of whole numbers.

    Unlike seed + epoch, (42, 1) and (43, 0) give unrelated sub-seeds. The finaliser is that of SplitMix64 (Steele, Lea
    and Flood, "Fast splittable pseudorandom number generators", 2014), chained over the numbers.

    Raises:
        ParameterError: A number is below 0 or needs more than 64 bits.
    """
    state = GOLDEN
    for number in numbers:
        if not 0 <= number <= _WORD:
            raise ParameterError("a seed is a whole number of at most 64 bits", got=number)
        state = _finalise((state ^ _finalise((number + GOLDEN) & _WORD)) * 0xD6E8FEB86659FD93 + GOLDEN & _WORD)
    return state


class _Feistel:
    """A bijection of the numbers of so many bits: rounds that change one half by a function of the other.

    Args:
        bits: Of a number, at least 2; the halves may differ by one.
        seed: Decides the bijection.
        backwards: Gives the inverse: each round undoes itself, so it is the same rounds in reverse order.
        tabulated: Computes each round once for every value of a half and looks it up then, which is worth it when
            there are more numbers than a half has values; bytes, if halves fit. Changes no number.
    """

    def __init__(self, bits: int, seed: int, *, backwards: bool, tabulated: bool) -> None:
        self._low_bits, high_bits = bits - bits // 2, bits // 2
        width = self._low_bits if tabulated else 64
        self._dtype = np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint64  # of a half
        keys = np.array([mix(seed, number) for number in range(_ROUNDS)], np.uint64)
        lows = [number % 2 == 1 for number in range(_ROUNDS)]  # which half each changes
        masks = np.array([(1 << (self._low_bits if low else high_bits)) - 1 for low in lows], np.uint64)
        if tabulated:
            halves = np.arange(1 << self._low_bits, dtype=np.uint64)
            changes = [_table_of(t) for t in _changed(halves, keys[:, None], masks[:, None]).astype(self._dtype)]
        else:
            changes = [partial(_changed, key=key, mask=mask) for key, mask in zip(keys, masks, strict=True)]
        self._rounds: list[tuple[bool, _Round]] = list(zip(lows, changes, strict=True))
        if backwards:
            self._rounds.reverse()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Gives whole numbers [N] for whole numbers [N]; of 2 bytes where halves are of 1."""
        high, low = (x >> self._low_bits).astype(self._dtype), x.astype(self._dtype)
        if self._low_bits < 8 * low.itemsize:
            low &= self._dtype((1 << self._low_bits) - 1)
        for changes_low, change in self._rounds:
            if changes_low:
                low ^= change(high)
            else:
                high ^= change(low)
        out = high.astype(np.uint16 if high.itemsize == 1 else np.int64)
        out <<= self._low_bits
        out |= low.astype(out.dtype, copy=False)
        return out


def _changed(half: np.ndarray, key: Any, mask: Any) -> np.ndarray:  # noqa: ANN401 - uint64, or arrays of it
    mixed = half + key
    mixed *= np.uint64(GOLDEN)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    mixed &= mask
    return mixed


def _table_of(table: np.ndarray) -> _Round:
    if table.itemsize == 1:  # an index into an array would first have to become one of 8 bytes
        whole = table.tobytes().ljust(256, b"\0")
        # A bytearray does it in half of the time of bytes, which look whether they have changed at all
        return lambda half: np.frombuffer(bytearray(half).translate(whole), np.uint8)
    return lambda half: table.take(half, mode="clip")  # every half is an index of it, so nothing is clipped


def _walk(index: np.ndarray, size: int, seed: int, *, backwards: bool) -> np.ndarray:
    index = np.asarray(index)
    if index.size and not (index.min() >= 0 and index.max() < size):
        raise ParameterError("an index lies outside of the permutation", got=index.min(), expected=f"0 ... {size - 1}")
    if size <= 1:
        return np.zeros(index.shape, np.int64)
    bits = max((size - 1).bit_length(), 2)
    encipher = _Feistel(bits, seed, backwards=backwards, tabulated=index.size >= 1 << (bits - bits // 2))
    flat, walked = index.reshape(-1), np.empty(index.size, np.int64)
    for start in range(0, len(flat), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        x = encipher(flat[part])
        if size < 1 << bits:
            outside = np.flatnonzero(x >= size)
            while outside.size:
                again = encipher(x[outside])
                x[outside] = again
                outside = outside[again >= size]
        walked[part] = x
    return walked.reshape(index.shape)


def permute(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Gives where a shuffle of `size` things puts each index; a bijection of 0 ... size - 1 for every size and seed.

    A Feistel network over the least number of bits that holds `size` (halves may differ by a bit), with cycle walking
    back into the range: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002. No state, no table.

    Args:
        index: Whole numbers, 0 <= index < size, any shape.
        size: Number of things.
        seed: Decides the permutation.

    Returns:
        int64, the shape of `index`.
    """
    return _walk(index, size, seed, backwards=False)


def unpermute(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Undoes `permute` with the same size and seed."""
    return _walk(index, size, seed, backwards=True)
