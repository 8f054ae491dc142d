from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import toy
from PIL import Image

from datasets.schema import Feature
from tasks.samples import MOST, chosen, grid


def shards(columns: dict[str, np.ndarray]) -> Any:
    return SimpleNamespace(blocks=lambda: iter([columns]))


def test_the_first_of_each_class_class_by_class() -> None:
    assert chosen(np.array([2, 0, 2, 0, 0, 1, 2]), 2) == [1, 3, 5, 0, 2]
    assert len(chosen(np.arange(100), 1)) == MOST


def test_pictures_are_drawn_and_equal_pictures_give_equal_bytes() -> None:
    dataset = toy.dataset(
        inputs="image",
        features={"image": Feature("uint8", (8, 8, 3)), "label": Feature("int32", classes=("cat", "dog"))},
    )
    columns = {"image": np.zeros((5, 8, 8, 3), np.uint8), "label": np.array([0, 1, 0, 1, 1], np.int32)}
    made = grid(shards(columns), dataset)
    assert made is not None
    assert Image.open(io.BytesIO(made)).size[0] > 500
    assert made == grid(shards(columns), dataset)
    columns["image"] = columns["image"] + 255
    assert made != grid(shards(columns), dataset)


def test_a_table_has_no_grid() -> None:
    features = {"x": Feature("float32", (3,)), "label": Feature("int32", classes=("a", "b"))}
    assert grid(shards({}), toy.dataset(inputs="x", features=features)) is None
