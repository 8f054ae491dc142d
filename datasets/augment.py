"""Random changes to training images: `augment=(Shift(2), Rotate(10))` in a dataset file's recipe.

Each is a frozen dataclass whose call takes a batch and that batch's random numbers and gives a new batch. What happens
to an example depends on its own numbers only, so it is the same in any batch. Images are uint8 or float32
[B, H, W, C]; shape and dtype stay as they are, and whatever comes into view from outside is 0 unless said otherwise.

Only additions, products and table look-ups decide a pixel, never a vectorised sine or logarithm whose last bit may
depend on the processor or on an example's place in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from datasets.errors import ParameterError, SchemaError
from datasets.pixel_moves import mirror, windows
from datasets.schema import check_float, check_int


@runtime_checkable
class Augmentation(Protocol):
    """What `Recipe.augment` holds; a frozen dataclass of your own with these two members works as well.

    One that can do its work within the images that it is given may also have `overwrite(images, u)`, which does so and
    gives them back. It is called for images that nobody else has, and saves what fresh memory costs.
    """

    draws: ClassVar[int]
    """Random numbers that it needs for an example."""

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives changed copies of images [B, H, W, C] from u, float32 [B, draws], 0 <= u < 1."""
        ...


@dataclass(frozen=True)
class Shift:
    """Moves an image by a whole number of pixels on each axis; each of -pixels ... pixels is equally likely.

    Attributes:
        pixels: Greatest distance on each axis.
    """

    pixels: int
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_int("pixels", self.pixels, 0)

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives shifted copies."""
        return self._into(np.empty(images.shape, images.dtype), images, u)

    def overwrite(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Shifts the images themselves."""
        return self._into(images, images, u)

    def _into(self, out: np.ndarray, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        check_images(images, self)
        return windows(images, pick(u, 2 * self.pixels + 1), self.pixels, mirror=False, out=out)


@dataclass(frozen=True)
class Crop:
    """Cuts the image's own size out of the image with `pad` mirrored pixels around it, at a random place.

    Unlike `Shift`, the border shows the image mirrored at its edge pixels, not 0; the usual choice for photographs.

    Attributes:
        pad: Pixels on each side; less than the image's height and width.
    """

    pad: int
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_int("pad", self.pad, 0)

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives cut copies."""
        return self._into(np.empty(images.shape, images.dtype), images, u)

    def overwrite(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Puts the cuts in the place of the images."""
        return self._into(images, images, u)

    def _into(self, out: np.ndarray, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        check_images(images, self)
        p = self.pad
        if p >= min(images.shape[1:3]):
            raise ParameterError(
                f"{self} needs larger images", parameter="pad", got=p, expected=f"less than {min(images.shape[1:3])}"
            )
        return windows(images, pick(u, 2 * p + 1), p, mirror=True, out=out)


@dataclass(frozen=True)
class Flip:
    """Mirrors an image left to right.

    Attributes:
        probability: That it does.
    """

    probability: float = 0.5
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_probability(self.probability)

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives copies, some of them mirrored."""
        return self.overwrite(images.copy(), u)

    def overwrite(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Mirrors some of the images themselves."""
        check_images(images, self)
        mirror(images, np.flatnonzero(u[:, 0] < self.probability))
        return images


@dataclass(frozen=True)
class Erase:
    """Sets a square at a random place inside the image to 0 (DeVries and Taylor, "Cutout", arXiv:1708.04552).

    Attributes:
        size: Side of the square in pixels; at most the image's height and width.
        probability: That it does.
    """

    size: int
    probability: float = 0.5
    draws: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_int("size", self.size, 1)
        _check_probability(self.probability)

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives copies, some of them with a square of 0."""
        return self.overwrite(images.copy(), u)

    def overwrite(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Sets the squares in the images themselves."""
        check_images(images, self)
        _, height, width, _ = images.shape
        if self.size > min(height, width):
            raise ParameterError(
                f"{self} needs larger images", parameter="size", got=self.size, expected=f"at most {min(height, width)}"
            )
        chosen = np.flatnonzero(u[:, 0] < self.probability)
        top = pick(u[chosen, 1], height - self.size + 1)
        left = pick(u[chosen, 2], width - self.size + 1)
        square = np.arange(self.size)
        images[chosen[:, None, None], (top[:, None] + square)[:, :, None], (left[:, None] + square)[:, None, :]] = 0
        return images


@dataclass(frozen=True)
class Noise:
    """Adds normal noise to each value, independent over pixels and channels.

    Attributes:
        std: As a share of full scale: times 255 for uint8 images (then rounded and kept within 0 ... 255), times 1 for
            float32 images (not clipped). The distribution is cut at 4.3 times this.
    """

    std: float
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_float("std", self.std, 0, math.inf)

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives copies with noise."""
        check_images(images, self)
        values = math.prod(images.shape[1:])
        bits = (u.astype(np.float64) * 2**24).astype(np.uint64)
        x = ((bits[:, :1] << np.uint64(24)) | bits[:, 1:]) * np.uint64(0xD6E8FEB86659FD93)
        x = x + np.arange(1, -(-values // 4) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        scale = np.float32(self.std * 255 if images.dtype == np.uint8 else self.std)
        quarters = x.astype("<u8", copy=False).view("<u2")[:, :values]
        noise = np.take(normal_quantiles() * scale, quarters).reshape(images.shape)
        if images.dtype == np.uint8:
            return np.clip(np.rint(images + noise), 0, 255).astype(np.uint8)
        return images + noise


@cache
def normal_quantiles() -> np.ndarray:
    """float32 [65536]: the standard normal distribution in pieces of equal probability."""
    inverse = NormalDist().inv_cdf
    half = np.array([inverse((i + 0.5) / 65536) for i in range(32768)], np.float32)
    return np.concatenate([half, -half[::-1]])


@dataclass(frozen=True)
class Rotate:
    """Turns an image around its centre, bilinear, by an angle that is uniform in -degrees ... degrees.

    Attributes:
        degrees: Greatest angle, at most 180; u = 0 turns by it anticlockwise, u -> 1 clockwise.
    """

    degrees: float
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_float("degrees", self.degrees, 0, math.nextafter(180, math.inf))

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Gives turned copies."""
        check_images(images, self)
        turned = np.empty_like(images)
        for start in range(0, len(images), 32):  # so that what lies in between stays in the processor's cache
            part = slice(start, start + 32)
            angles = [math.radians((2 * draw - 1) * self.degrees) for draw in u[part, 0].tolist()]
            turned[part] = _turn(images[part], angles)
        return turned


def _turn(images: np.ndarray, angles: list[float]) -> np.ndarray:
    count, height, width, channels = images.shape
    cos = np.array([math.cos(a) for a in angles], np.float32)[:, None, None]
    sin = np.array([math.sin(a) for a in angles], np.float32)[:, None, None]
    y = np.arange(height, dtype=np.float32)[:, None] - np.float32((height - 1) / 2)
    x = np.arange(width, dtype=np.float32)[None, :] - np.float32((width - 1) / 2)
    # Where each pixel comes from, in an image with a border of 0 one pixel wide.
    from_y = cos * y - sin * x + np.float32((height - 1) / 2 + 1)
    from_x = sin * y + cos * x + np.float32((width - 1) / 2 + 1)
    np.clip(from_y, 0, np.float32(height + 1) - np.float32(1e-3), out=from_y)
    np.clip(from_x, 0, np.float32(width + 1) - np.float32(1e-3), out=from_x)
    top, left = from_y.astype(np.int32), from_x.astype(np.int32)
    down, right = (from_y - top)[..., None], (from_x - left)[..., None]
    row = width + 2
    at = (top * row + left) + (np.arange(count, dtype=np.int32) * ((height + 2) * row))[:, None, None]
    pixels = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0))).reshape(-1, channels).astype(np.float32)

    def corner(offset: int) -> np.ndarray:
        return np.take(pixels, at + offset, axis=0)

    above = corner(0) + right * (corner(1) - corner(0))
    below = corner(row) + right * (corner(row + 1) - corner(row))
    values = above + down * (below - above)
    return np.rint(values).astype(np.uint8) if images.dtype == np.uint8 else values


def overwriting(augmentation: Augmentation) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """An augmentation's `overwrite`, or itself if it has none, or one that is of another class than its `__call__`."""
    for kind in type(augmentation).__mro__:
        if "__call__" in vars(kind):
            return augmentation.overwrite if "overwrite" in vars(kind) else augmentation  # pyright: ignore[reportAttributeAccessIssue]
    return augmentation


def pick(u: np.ndarray, count: int) -> np.ndarray:
    """Gives int64 0 ... count - 1, equally likely, from 0 <= u < 1."""
    return (u.astype(np.float64) * count).astype(np.int64)


def check_images(images: np.ndarray, augmentation: object) -> None:
    """Raises SchemaError unless `images` is uint8 or float32 [B, H, W, C]."""
    if images.ndim != 4 or images.dtype not in (np.uint8, np.float32):
        raise SchemaError(
            f"{augmentation} changes images only", got=f"{images.dtype} {list(images.shape)}",
            expected="uint8 or float32 [B, H, W, C]", cure="declare the feature's shape as (height, width, channels)",
        )  # fmt: skip


def _check_probability(probability: float) -> None:
    check_float("probability", probability, 0, math.nextafter(1, 2))
