"""Rules that deal rows out to splits: exact numbers, no entity in two splits, stable when rows are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError, SchemaError, SplitError
from datasets.splits import (
    ByFraction,
    ByHash,
    ByTime,
    Files,
    Rows,
    columns_of,
    draw,
    hashed,
    looks_at_one_row,
    names_of,
    rows_of,
    shared_out,
)  # fmt: skip

TENTHS = {"train": 0.8, "val": 0.1, "test": 0.1}


def dealt(splits: Any, columns: dict[str, np.ndarray], block: int, drawn: np.ndarray | None = None) -> dict[str, Any]:
    """Rows of each split, from blocks of a file."""
    rows = len(next(iter(columns.values())))
    found: dict[str, list[int]] = {name: [] for name in names_of(splits)}
    for start in range(0, rows, block):
        part = {name: column[start : start + block] for name, column in columns.items()}
        count = len(next(iter(part.values())))
        for name, at in rows_of(splits, part, "raw", start, count, drawn).items():
            found[name] += (at + start).tolist()
    return found


# ------------------------------------------------------------------------------------------------------------- fraction


@pytest.mark.parametrize(
    ("rows", "shares", "expected"),
    [(1000, (0.8, 0.1, 0.1), [800, 100, 100]), (10, (0.8, 0.1, 0.1), [8, 1, 1]), (11, (0.8, 0.1, 0.1), [9, 1, 1]),
     (10, (0.9, 0.05, 0.05), [9, 1, 0]), (3, (0.5, 0.5), [2, 1]), (100, (0.29, 0.71), [29, 71]),
     (100, (0.5, 0.2), [50, 20]), (0, (0.5, 0.5), [0, 0]), (1, (0.4, 0.6), [0, 1]), (10, (0.7, 0.2, 0.1), [7, 2, 1])],
)  # fmt: skip
def test_largest_remainders(rows: int, shares: tuple[float, ...], expected: list[int]) -> None:
    assert shared_out(rows, shares) == expected


@pytest.mark.parametrize("rows", [1, 7, 99, 1001])
def test_no_row_is_lost_by_rounding(rows: int) -> None:
    for shares in ((1 / 3, 1 / 3, 1 / 3), (0.7, 0.2, 0.1), (0.1,) * 10):
        counts = shared_out(rows, shares)
        assert sum(counts) == rows
        assert all(abs(count - rows * share) < 1 for count, share in zip(counts, shares, strict=True))


@pytest.mark.parametrize("block", [7, 1000])
def test_by_fraction_deals_out_exact_numbers_at_random(block: int) -> None:
    rule = ByFraction(TENTHS, seed=5)
    found = dealt(rule, {"x": np.zeros(1000)}, block, draw(rule, 1000))
    assert {name: len(rows) for name, rows in found.items()} == {"train": 800, "val": 100, "test": 100}
    assert sorted(row for rows in found.values() for row in rows) == list(range(1000))
    assert found["test"] != list(range(900, 1000))
    assert 350 < np.mean(found["test"]) < 650
    assert dealt(rule, {"x": np.zeros(1000)}, 50, draw(rule, 1000)) == found


def test_another_seed_is_another_draw_and_the_rest_is_left_out() -> None:
    parts = {"train": 0.5, "test": 0.25}
    one, other = draw(ByFraction(parts, seed=1), 400), draw(ByFraction(parts, seed=2), 400)
    assert np.bincount(one).tolist() == np.bincount(other).tolist() == [200, 100, 100]
    assert (one != other).sum() > 100
    found = dealt(ByFraction(parts, seed=1), {"x": np.zeros(400)}, 64, one)
    assert {name: len(rows) for name, rows in found.items()} == {"train": 200, "test": 100}


def test_stratified_deals_out_every_class_in_these_shares() -> None:
    labels = np.repeat([0, 1, 2], [700, 200, 100])[np.random.default_rng(0).permutation(1000)]
    index = draw(ByFraction(TENTHS, stratify="label"), 1000, labels)
    for value, count in ((0, 700), (1, 200), (2, 100)):
        shares = np.bincount(index[labels == value], minlength=3)
        assert shares.tolist() == [count * 8 // 10, count // 10, count // 10]


def test_an_empty_split_is_named_with_the_numbers_that_made_it() -> None:
    with pytest.raises(SplitError, match=r"'val' has 0 records: 10 x 0.04 rounds to 0") as caught:
        draw(ByFraction({"train": 0.9, "test": 0.06, "val": 0.04}), 10)
    assert caught.value.facts["split"] == "val"


def test_a_draw_is_the_same_for_ever() -> None:
    assert draw(ByFraction({"train": 0.5, "test": 0.5}, seed=3), 12).tolist() == DRAWN


# ----------------------------------------------------------------------------------------------------------------- hash


def test_by_hash_keeps_an_entity_in_one_split_however_many_rows_are_added() -> None:
    users = np.random.default_rng(0).integers(0, 2000, 30_000)
    rule = ByHash("user", TENTHS)
    found = dealt(rule, {"user": users}, 512)
    assert sorted(row for rows in found.values() for row in rows) == list(range(30_000))
    keys = {name: set(users[rows].tolist()) for name, rows in found.items()}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["val"]
    assert not keys["val"] & keys["test"]
    shares = {name: len(keys[name]) / 2000 for name in keys}
    assert shares == pytest.approx(TENTHS, abs=0.03)
    more = dealt(rule, {"user": np.concatenate([users, np.arange(5000)])}, 512)
    for name, rows in found.items():
        assert [row for row in more[name] if row < 30_000] == rows


def test_a_key_hashes_by_its_value_not_by_its_dtype_and_the_salt_counts() -> None:
    keys = np.arange(-100, 100)
    wide = hashed(keys, "")
    np.testing.assert_array_equal(hashed(keys.astype(np.int8), ""), wide)
    np.testing.assert_array_equal(hashed(np.arange(100, dtype=np.uint64), ""), wide[100:])
    assert (hashed(keys, "other") != wide).all()
    assert len(set(wide.tolist())) == 200
    assert 0 <= wide.min() < 0.1
    assert 0.9 < wide.max() < 1


def test_a_key_of_several_numbers() -> None:
    keys = np.array([[1, 2], [2, 1], [1, 2], [0, 3]])
    numbers = hashed(keys, "")
    assert numbers[0] == numbers[2]
    assert len(set(numbers.tolist())) == 3


def test_consecutive_keys_are_dealt_out_evenly() -> None:
    counts, _ = np.histogram(hashed(np.arange(20_000), ""), 20, (0, 1))
    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_hash_is_the_same_for_ever() -> None:
    np.testing.assert_array_equal(hashed(np.array([0, 1, -1, 2**62]), "salt"), HASHED)


# ----------------------------------------------------------------------------------------------------------------- time


def test_by_time_has_start_inside_and_stop_outside() -> None:
    rule = ByTime("month", {"train": (None, 6), "test": (6, 8)})
    found = dealt(rule, {"month": np.array([5, 6, 7, 8, -3, 6])}, 4)
    assert found == {"train": [0, 4], "test": [1, 2, 5]}


def test_a_time_that_is_not_finite_is_refused() -> None:
    with pytest.raises(SchemaError, match="time isn't finite") as caught:
        rows_of(ByTime("t", {"train": (None, 1.0), "test": (1.0, None)}), {"t": np.array([0, np.nan])}, "f", 0, 2, None)
    assert (caught.value.facts["file"], caught.value.facts["row_of_block"]) == ("f", 1)


# ---------------------------------------------------------------------------------------------------- by rows and files


def test_rows_and_files() -> None:
    rules = {"train": Rows(2, 5), "test": Files("raw"), "none": Files("x")}
    found = dealt(rules, {"x": np.zeros(7)}, 3)
    assert found == {"train": [2, 3, 4], "test": list(range(7)), "none": []}


@pytest.mark.parametrize(
    ("splits", "one_row", "columns"),
    [({"train": Files("a"), "test": Files("b")}, True, ()), ({"train": Files("a"), "test": Rows(0, 1)}, False, ()),
     (ByHash("user", TENTHS), True, ("user",)), (ByTime("t", {"train": (0, 1)}), True, ("t",)),
     (ByFraction(TENTHS), False, ()), (ByFraction(TENTHS, stratify="y"), False, ("y",))],
)  # fmt: skip
def test_what_a_rule_looks_at(splits: Any, one_row: bool, columns: tuple[str, ...]) -> None:
    assert looks_at_one_row(splits) is one_row
    assert columns_of(splits) == columns


@pytest.mark.parametrize(
    "make",
    [lambda: ByFraction({}), lambda: ByFraction({"train": 0.0}), lambda: ByFraction({"train": 1.5}),
     lambda: ByFraction({"train": 0.7, "test": 0.4}), lambda: ByHash("u", {"train": float("nan")}),
     lambda: ByHash("u", {"train": True}), lambda: ByFraction(TENTHS, seed=-1), lambda: ByFraction(0.8),  # type: ignore[arg-type]
     lambda: ByTime("t", {"train": (None, 6), "test": (5, None)}), lambda: ByTime("t", {"train": (6, 6)}),
     lambda: ByTime("t", {"a": (0, 10), "b": (2, 3)})],
)  # fmt: skip
def test_rules_that_can_not_work(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()


def test_fractions_that_are_1_but_for_rounding_leave_no_key_out() -> None:
    rule = ByHash("k", {"a": 0.7, "b": 0.2, "c": 0.1})
    found = dealt(rule, {"k": np.arange(3000)}, 1000)
    assert sum(map(len, found.values())) == 3000


DRAWN = [0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1]
HASHED = [0.028097944625564697, 0.8092918872892241, 0.5611494166326021, 0.5375875798891316]
