"""How examples are dealt out to splits: as the source gives them, by fraction, by hash of a key column, or by time.

Which rule for which data:

    {"train": Rows(0, 9_000), "test": Rows(9_000, 10_000)}              the source says it, by position
    {"train": Files("train"), "test": Files("t10k")}                    the source says it, by raw file
    ByFraction({"train": 0.8, "test": 0.2}, seed=0, stratify="label")   finished data; every new row deals anew
    ByHash("user", {"train": 0.9, "test": 0.1})                         growing data, entities that must not leak
    ByTime("month", {"train": (None, 6), "test": (6, None)})            the future is predicted from the past

Rounding of fractions: the largest-remainder method (Hamilton). Each split first gets the whole part of rows x fraction;
the rows that are left go, one each, to the splits with the largest remainders, the earlier named one at a tie. A
stratified split does so class by class. Fractions may add up to less than 1: the rest is left out, and counted.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from datasets.checks import check_float, check_int
from datasets.errors import ParameterError, SchemaError, SplitError

SLACK = 1e-9  # 0.7 + 0.2 + 0.1 isn't 1 in binary


@dataclass(frozen=True)
class Rows:
    """A split by position: rows start <= i < stop of what the reader gives, counted over all of its blocks."""

    start: int
    stop: int


@dataclass(frozen=True)
class Files:
    """A split by raw file: every row of the files whose name starts with `prefix`.

    Attributes:
        prefix: Of the raw files' names.
        count: Rows that there must be, where that is known beforehand.
    """

    prefix: str
    count: int | None = None


@dataclass(frozen=True)
class ByFraction:
    """Rows drawn at random, in exact numbers (see the rounding rule above).

    Attributes:
        parts: Share of the rows a split, in the order of the splits.
        seed: Of the draw.
        stratify: Feature of whole numbers, usually the label, whose every value is dealt out in these shares.
    """

    parts: Mapping[str, float]
    seed: int = 0
    stratify: str | None = None

    def __post_init__(self) -> None:
        _check_parts(self.parts)
        check_int("seed", self.seed, 0)


@dataclass(frozen=True)
class ByHash:
    """By hash of a key column: an entity is in one split only, and stays there however many rows are added.

    Attributes:
        key: Feature of whole numbers, of any shape, such as a user id.
        parts: Share of the *keys* a split; the numbers of rows follow from them, roughly.
        salt: Another text deals the keys out differently.
    """

    key: str
    parts: Mapping[str, float]
    salt: str = ""

    def __post_init__(self) -> None:
        _check_parts(self.parts)


@dataclass(frozen=True)
class ByTime:
    """By a column of time: a split has the rows with start <= time < stop.

    Attributes:
        column: Feature of one number a row: a month, a day, seconds since an epoch.
        parts: (start, stop) a split, None for no limit; they must not overlap, and gaps between them are left out.
    """

    column: str
    parts: Mapping[str, tuple[float | None, float | None]]

    def __post_init__(self) -> None:
        spans = []
        for name, bounds in self.parts.items():
            start, stop = (-math.inf if bounds[0] is None else bounds[0], math.inf if bounds[1] is None else bounds[1])
            if not start < stop:
                raise ParameterError(
                    f"split {name!r} has no time", parameter="parts", got=bounds, expected="(start, stop), start < stop"
                )
            spans.append((start, stop, name))
        spans.sort()
        for (_, stop, one), (start, _, other) in itertools.pairwise(spans):
            if start < stop:
                raise ParameterError(
                    f"splits {one!r} and {other!r} overlap in time", parameter="parts", got=f"{start} to {stop}"
                )


Splits: TypeAlias = Mapping[str, Rows | Files] | ByFraction | ByHash | ByTime
"""What a dataset file says about its splits."""


def names_of(splits: Splits) -> tuple[str, ...]:
    """Names of the splits, in their order."""
    return tuple(splits if isinstance(splits, Mapping) else splits.parts)


def looks_at_one_row(splits: Splits) -> bool:
    """Whether a row's split depends on nothing but the row and its file, so that files can be converted one by one."""
    if isinstance(splits, Mapping):
        return all(isinstance(rule, Files) for rule in splits.values())
    return not isinstance(splits, ByFraction)


def columns_of(splits: Splits) -> tuple[str, ...]:
    """Features that decide a row's split."""
    if isinstance(splits, ByHash):
        return (splits.key,)
    if isinstance(splits, ByTime):
        return (splits.column,)
    return (splits.stratify,) if isinstance(splits, ByFraction) and splits.stratify else ()


def rows_of(
    splits: Splits, columns: Mapping[str, np.ndarray], file: str, position: int, rows: int, drawn: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Rows of one block that each split has, as ascending indices into the block.

    Args:
        splits: The rule.
        columns: Of the block, [rows, *shape] a feature.
        file: Raw file of the block.
        position: Of its first row among all that the reader gives.
        rows: Number of rows.
        drawn: For ByFraction, what `draw` gave.

    Raises:
        SchemaError: A time isn't finite.
    """
    if isinstance(splits, Mapping):
        spans = {name: _span(rule, file, position, rows) for name, rule in splits.items()}
        return {name: np.arange(start, max(start, stop)) for name, (start, stop) in spans.items()}
    if isinstance(splits, ByTime):
        return _by_time(splits, columns[splits.column], file)
    if isinstance(splits, ByHash):
        shares = hashed(columns[splits.key], splits.salt)
        index = np.searchsorted(np.array(_limits(splits.parts)), shares, side="right")
    else:
        if drawn is None:
            raise ParameterError("a split by fraction needs the draw over all rows", parameter="drawn")
        index = drawn[position : position + rows]
    return {name: np.flatnonzero(index == i) for i, name in enumerate(splits.parts)}


def draw(rule: ByFraction, rows: int, strata: np.ndarray | None = None) -> np.ndarray:
    """The split of every row by its number: uint8 [rows], the index of a split or the number of splits for none.

    The draw ranks the rows by a hash of (seed, row), so it is the same with every version of every library.

    Args:
        rule: Shares, seed.
        rows: How many there are.
        strata: Value of `rule.stratify` a row, if that is asked for: [rows].

    Raises:
        SplitError: A split gets no row, which is said with the numbers that made it so.
    """
    index = np.full(rows, len(rule.parts), np.uint8)
    rank = np.argsort(hashed(np.arange(rows), str(rule.seed)), kind="stable")
    groups = [rank] if strata is None else [rank[strata[rank] == value] for value in np.unique(strata)]
    for group in groups:
        start = 0
        for i, count in enumerate(shared_out(len(group), rule.parts.values())):
            index[group[start : start + count]] = i
            start += count
    for i, (name, share) in enumerate(rule.parts.items()):
        if not (index == i).any():
            within = "" if strata is None else f" in each of {len(groups)} classes"
            raise SplitError(
                f"split {name!r} has 0 records: {rows} x {share} rounds to 0{within}", split=name, rows=rows,
                cure="a larger share, or more data",
            )  # fmt: skip
    return index


def shared_out(rows: int, shares: Iterable[float]) -> list[int]:
    """How many of `rows` each share gets, by the largest-remainder method; what is left over belongs to none."""
    exact = [rows * share for share in shares]
    exact.append(max(rows - math.fsum(exact), 0.0))  # a last one for the rows that are left out
    # 0.29 * 100 is 28.999999999999996
    whole = [math.floor(value + SLACK) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (-round(exact[i] - whole[i], 9), i))
    for i in by_remainder[: max(rows - sum(whole), 0)]:
        whole[i] += 1
    return whole[:-1]


def hashed(keys: np.ndarray, salt: str) -> np.ndarray:
    """A number in [0, 1) for each key, float64 [rows]; equal keys have equal numbers whatever their integer dtype.

    SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), folded over
    the elements of a key.

    Args:
        keys: Whole numbers, [rows, *shape].
        salt: Another text gives other numbers.
    """
    wide = keys.astype(np.uint64 if keys.dtype == np.uint64 else np.int64).view(np.uint64).reshape(len(keys), -1)
    start = int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "little")
    state = np.full(len(keys), start, np.uint64)
    for i in range(wide.shape[1]):
        state = mixed(state + np.uint64(0x9E3779B97F4A7C15) ^ wide[:, i])
    return (state >> np.uint64(11)) * 2.0**-53


def mixed(state: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, a bijection on uint64 [rows]."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _span(rule: Rows | Files, file: str, position: int, rows: int) -> tuple[int, int]:
    if isinstance(rule, Files):
        return (0, rows) if file.startswith(rule.prefix) else (0, 0)
    return max(rule.start - position, 0), min(rule.stop - position, rows)


def _by_time(rule: ByTime, times: np.ndarray, file: str) -> dict[str, np.ndarray]:
    if times.dtype.kind == "f" and (bad := np.flatnonzero(~np.isfinite(times))).size:
        raise SchemaError(
            "a time isn't finite, so the row has no split", file=file, field=rule.column, row_of_block=int(bad[0]),
            got=float(times[bad[0]]), count=len(bad),
        )  # fmt: skip
    found = {}
    for name, (start, stop) in rule.parts.items():
        inside = np.ones(len(times), bool) if start is None else times >= start
        found[name] = np.flatnonzero(inside if stop is None else inside & (times < stop))
    return found


def _limits(parts: Mapping[str, float]) -> list[float]:
    sums = [math.fsum(list(parts.values())[: i + 1]) for i in range(len(parts))]
    return [1.0 if abs(total - 1) < SLACK else total for total in sums]


def _check_parts(parts: object) -> None:
    if not isinstance(parts, Mapping) or not parts:
        raise ParameterError("parts is a mapping", parameter="parts", got=repr(parts), expected='{"train": 0.8, ...}')
    if len(parts) > 100:
        raise ParameterError("too many splits", parameter="parts", got=len(parts), expected="at most 100")
    for name, share in parts.items():
        check_float(f"parts[{name!r}]", share, 0, 1)
        if share == 0:
            raise ParameterError("a split of no rows", parameter=f"parts[{name!r}]", got=share)
    if (total := math.fsum(parts.values())) > 1 + SLACK:
        raise ParameterError("fractions add up to more than 1", parameter="parts", got=total, expected="at most 1")
