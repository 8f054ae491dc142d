"""What the peers share: MNIST from its four raw files, and a line for each evaluation; imports nothing of this project.

A peer is started as `python -P NAME.py FOLDER STEPS BATCH`, trains on the 60,000 digits, and after every STEPS steps
writes {"step": n, "accuracy": of all test digits} as one line of JSON; or {"missing": why}.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np


def load(folder: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train and test images (uint8 [n, 28, 28]) and labels (uint8 [n]), from IDX files, compressed or not."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    a, b, c, d = (_array(Path(folder), f"{name}-ubyte") for name in names)
    return a, b, c, d


def tell(step: int, accuracy: float) -> None:
    """Writes the line of an evaluation."""
    print(json.dumps({"step": step, "accuracy": accuracy}), flush=True)  # noqa: T201


def missing(error: ImportError) -> None:
    """Writes that a library isn't there."""
    print(json.dumps({"missing": str(error)}), flush=True)  # noqa: T201


def arguments() -> tuple[str, int, int]:
    """Folder, steps between evaluations, examples of a step."""
    return sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def _array(folder: Path, name: str) -> np.ndarray:
    plain = folder / name
    raw = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">u4", dimensions, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
