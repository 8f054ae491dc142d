"""Raw files as of MNIST: 160 digits to train on and 80 to test, of one bright row each, easy to tell."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import toy


def write_digits(folder: Path) -> Path:
    """Four IDX files, one of them compressed."""
    labels = np.arange(240) % 10
    images = np.random.default_rng(0).integers(0, 60, (240, 28, 28))
    images[np.arange(240), 2 * labels + 3] = 250
    for name, values in {
        "train-images-idx3": images[:160], "train-labels-idx1": labels[:160], "t10k-images-idx3": images[160:],
        "t10k-labels-idx1": labels[160:],
    }.items():  # fmt: skip
        (folder / f"{name}-ubyte").write_bytes(toy.idx_bytes(values))
    plain = folder / "train-images-idx3-ubyte"
    plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return folder
