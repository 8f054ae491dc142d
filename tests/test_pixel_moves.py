"""Against the plainest way to do the same, for every size of pixel and for small and large images alike."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.pixel_moves import mirror, windows

SHAPES = [(5, 7, 9, 1), (5, 9, 7, 3), (3, 128, 130, 3), (4, 130, 128, 1), (2, 90, 70, 4), (3, 5, 6, 2), (2, 1, 1, 3)]


def batch(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return images if dtype is np.uint8 else images.astype(dtype) / 255


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mirror(shape: tuple[int, ...], dtype: type) -> None:
    images = batch(shape, dtype)
    for chosen in ([], [0], [len(images) - 1], range(0, len(images), 2), range(len(images))):
        want = images.copy()
        for i in chosen:
            want[i] = images[i][:, ::-1]
        turned = images.copy()
        mirror(turned, np.array(chosen, int))
        np.testing.assert_array_equal(turned, want)


def test_mirror_in_many_parts() -> None:
    images = batch((300, 32, 32, 3), np.uint8)
    whole, part = images.copy(), images.copy()
    mirror(whole, np.arange(300))
    np.testing.assert_array_equal(whole, images[:, :, ::-1])
    mirror(part[::-2], np.arange(150))
    np.testing.assert_array_equal(part[1::2], images[1::2, :, ::-1])
    np.testing.assert_array_equal(part[::2], images[::2])


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape: tuple[int, ...], dtype: type, mirror: bool) -> None:
    images = batch(shape, dtype)
    for p in {0, 1, min(shape[1:3]) - 1} | (set() if mirror else {200}):
        if mirror and p >= min(shape[1:3]):
            continue
        border = ((p, p), (p, p), (0, 0))
        for seed in range(4):
            place = np.random.default_rng(seed).integers(0, 2 * p + 1, (len(images), 2))
            place[0] = [(0, 0), (2 * p, 2 * p), (p, p), (0, 2 * p)][seed]
            for out in (np.empty_like(images), images.copy()):  # the latter in its own place
                cuts = windows(out if np.array_equal(out, images) else images, place, p, mirror=mirror, out=out)
                assert cuts is out
                for image, (top, left), cut in zip(images, place, cuts, strict=True):
                    wide = np.pad(image, border, mode="reflect") if mirror else np.pad(image, border)
                    np.testing.assert_array_equal(cut, wide[top : top + shape[1], left : left + shape[2]])
