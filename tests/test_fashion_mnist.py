"""Fashion-MNIST: what the dataset file states, and that its reader takes four IDX files apart as stated."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from datasets.fashion_mnist import DATASET
from datasets.schema import Files

SPLITS = cast(Mapping[str, Any], DATASET.splits)


def write(folder: Path, part: str, labels: list[int]) -> None:
    n = len(labels)
    pixels = (np.arange(n * 784) % 251).astype(np.uint8).tobytes()
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, n, 28, 28) + pixels)
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + bytes(labels))


def test_files_are_pinned_by_their_uncompressed_content() -> None:
    sizes = {file.name: file.bytes for file in DATASET.source.files}
    assert sizes == {
        "train-images-idx3-ubyte": 16 + 60_000 * 784,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 784,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }
    digests = [file.sha256 for file in DATASET.source.files]
    assert len(set(digests)) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    assert digests[0].startswith("c59f468a")
    assert len(set(DATASET.source.mirrors)) >= 2


def test_train_rows_then_test_rows_each_under_its_file(tmp_path: Path) -> None:
    write(tmp_path, "train", [9, 0, 3])
    write(tmp_path, "t10k", [1, 2])
    blocks = list(DATASET.read(tmp_path))
    train, test = SPLITS["train"], SPLITS["test"]
    assert isinstance(train, Files)
    assert isinstance(test, Files)
    by_split = {
        prefix: [int(label) for block in blocks if block.file.startswith(prefix) for label in block.columns["label"]]
        for prefix in (train.prefix, test.prefix)
    }
    assert by_split == {"train": [9, 0, 3], "t10k": [1, 2]}
    assert (train.count, test.count) == (60_000, 10_000)
    for block in blocks:
        assert block.row == 0
        assert set(block.columns) == set(DATASET.features)
        for name, feature in DATASET.features.items():
            assert block.columns[name].dtype == feature.dtype
            assert block.columns[name].shape[1:] == feature.shape


def test_classes() -> None:
    classes = DATASET.features["label"].classes
    assert len(set(classes)) == 10
    assert (classes[0], classes[9]) == ("T-shirt/top", "Ankle boot")
