from __future__ import annotations

import numpy as np
import pytest

from tasks.duplicates import Contents, fingerprints


def contents(train: list[int], test: list[int], labels: dict[int, int] | None = None, block: int = 3) -> Contents:
    """Rows whose content is a number and whose label is the number's last digit, unless `labels` says otherwise by
    position over both splits."""
    made, at = Contents(), 0
    for split, rows in (("train", train), ("test", test)):
        for start in range(0, len(rows), block):
            part = np.array(rows[start : start + block])
            label = np.array([(labels or {}).get(at + i, number % 10) for i, number in enumerate(part)])
            made.add(split, np.stack([part, part * 7], axis=1).astype(np.float32), label)
            at += len(part)
    return made


def test_without_duplicates() -> None:
    assert contents([1, 2, 3, 4], [5, 6]).duplicates() == {
        "within": {"train": 0, "test": 0}, "across": {"train/test": 0}, "conflicting": 0, "pairs": [],
    }  # fmt: skip


@pytest.mark.parametrize("block", [1, 2, 100])
def test_within_and_across_are_counted_apart(block: int) -> None:
    found = contents([1, 2, 1, 1, 3], [3, 8, 3, 8, 2], block=block).duplicates()
    assert found["within"] == {"train": 2, "test": 2}
    assert found["across"] == {"train/test": 3}
    assert found["conflicting"] == 0
    assert found["pairs"] == [
        ["train", 1, "test", 4, False], ["train", 4, "test", 0, False], ["test", 1, "test", 3, False],
        ["train", 0, "train", 2, False],
    ]  # fmt: skip


def test_conflicting_labels_come_first() -> None:
    found = contents([1, 2, 3, 3], [1, 2], labels={5: 9, 3: 4}).duplicates()
    assert found["conflicting"] == 2
    assert found["pairs"] == [
        ["train", 1, "test", 1, True], ["train", 2, "train", 3, True], ["train", 0, "test", 0, False],
    ]  # fmt: skip


def test_every_byte_of_a_row_counts() -> None:
    rows = np.zeros((41, 41), np.uint8)
    rows[np.arange(41), np.arange(41)] = 1
    rows = np.concatenate([rows, rows[:1], np.zeros((1, 41), np.uint8)])
    hashes = fingerprints(rows)
    assert hashes.shape == (43, 2)
    assert len({row.tobytes() for row in hashes}) == 42
    assert len(set(hashes[:, 0].tolist())) == len(set(hashes[:, 1].tolist())) == 42


@pytest.mark.parametrize("dtype", ["float16", "int64", "bool", "float32"])
def test_rows_of_any_dtype_and_shape(dtype: str) -> None:
    rows = np.array([[[0], [1]], [[1], [0]], [[0], [1]]]).astype(dtype)
    hashes = fingerprints(rows)
    assert (hashes[0] == hashes[2]).all()
    assert (hashes[0] != hashes[1]).all()
