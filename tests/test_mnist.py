"""The bundled sample: its files are those that are pinned, and its records are MNIST's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

import datasets.mnist
from datasets.mnist import DATASET
from datasets.readers import raw
from datasets.schema import Rows

assert DATASET.source.folder is not None
SPLITS = cast(Mapping[str, Any], DATASET.splits)
FOLDER = Path(datasets.mnist.__file__).parent / DATASET.source.folder


def test_bundled_files_are_the_pinned_ones() -> None:
    for file in DATASET.source.files:
        with raw.opened(raw.find(FOLDER, file.name)) as stream:
            content = stream.read()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)


def test_records() -> None:
    blocks = list(DATASET.read(FOLDER))
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in DATASET.features}
    assert set(blocks[0].columns) == set(DATASET.features)
    for name, feature in DATASET.features.items():
        assert columns[name].dtype == feature.dtype
        assert columns[name].shape == (10_000, *feature.shape)
    assert columns["label"][:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    # The record that the docstring of the dataset file works out.
    assert (int((columns["image"][0] > 0).sum()), int(columns["image"][0].sum())) == (166, 27_525)


def test_splits_share_no_row_and_hold_every_class() -> None:
    label = np.concatenate([block.columns["label"] for block in DATASET.read(FOLDER)])
    train, test = SPLITS["train"], SPLITS["test"]
    assert (train, test) == (Rows(0, 9_000), Rows(9_000, 10_000))
    assert isinstance(train, Rows)
    assert isinstance(test, Rows)
    assert np.bincount(label[train.start : train.stop]).tolist() == [891, 1023, 889, 922, 899, 774, 908, 961, 846, 887]
    assert np.bincount(label[test.start : test.stop]).tolist() == [110, 104, 102, 110, 81, 89, 106, 109, 98, 91]


def test_it_says_that_it_is_a_sample() -> None:
    assert "sample" in DATASET.about
