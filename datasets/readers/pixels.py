r"""Pixels of one picture in a declared shape and dtype.

Pillow reads; these are the rules, in this order (arguments of the readers, so part of the convert stage's key):

- Orientation: the picture is turned as its EXIF tag says, unless `orient=False`; an illegal tag counts as upright and
  is logged. Of an animation or a file of many pages the first frame counts.
- Channels are those of the declared shape: 1 (or none) grey, 3 RGB, 4 RGB and alpha. Grey becomes RGB by repetition,
  RGB becomes grey by ITU-R 601-2 luma, 1-bit becomes 0 and 255, a palette becomes its colours, CMYK and others become
  RGB.
- Alpha, of whatever mode, is composed over `background`, unless 4 channels are declared: hidden colours never show.
- Size: must be the declared one, unless `fit` says how it is made so: "stretch"; "crop" keeps the proportions and the
  middle; "pad" keeps them and all of the picture, on `background`. Bilinear, with antialiasing.
- uint8 holds 0 ... 255; 16-bit grey becomes the nearest 1/257. uint16 holds 0 ... 65535, 8-bit times 257. float32 holds
  0 ... 1. Floating-point pictures (mode F) are taken as they are, for float32 with one channel only.

Names that aren't UTF-8 are shown and stored escaped (`a\xff.png`).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from datasets.errors import DataFormatError, SchemaError
from datasets.schema import Feature

MOST_PIXELS = 89_478_485  # Pillow's own limit, at which it only warns
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
WHITE = (255, 255, 255)

Fit = Literal["stretch", "crop", "pad"]

log = logging.getLogger(__name__)


def read_image(
    path: Path,
    feature: Feature,
    *,
    fit: Fit | None = None,
    background: tuple[int, int, int] = WHITE,
    orient: bool = True,
) -> np.ndarray:
    """One picture as a feature, by the rules at the top of this file.

    Returns:
        [height, width] or [height, width, channels], as declared; uint8, uint16 or float32.

    Raises:
        DataFormatError: It is no picture, or cut, damaged or too large.
        SchemaError: It can't have the declared shape or dtype.
    """
    channels = feature.shape[2] if len(feature.shape) == 3 else 1
    if len(feature.shape) not in (2, 3) or channels not in MODES or feature.dtype not in ("uint8", "uint16", "float32"):
        raise SchemaError(
            "a picture can't be the declared feature", got=f"{feature.dtype} {feature.shape}",
            expected="uint8, uint16 or float32 of shape (height, width[, 1, 3 or 4])",
        )  # fmt: skip
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise DataFormatError(
                    "picture is too large",
                    file=_printable(path),
                    got=opened.size,
                    expected=f"at most {MOST_PIXELS} pixels",
                )
            opened.load()
            picture = _upright(opened, path) if orient else opened
            picture = _with_channels(picture, channels, feature, path, background)
    except UnidentifiedImageError as error:
        with path.open("rb") as file:
            start = file.read(8)
        raise DataFormatError("not a picture", file=_printable(path), got=f"starts {start!r}") from error
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataFormatError("damaged picture", file=_printable(path), got=error) from error
    height, width = feature.shape[:2]
    if picture.size != (width, height):
        if fit is None:
            bands = len(picture.getbands())
            raise SchemaError(
                "picture of another size", file=_printable(path), got=(picture.height, picture.width, bands),
                expected=feature.shape, cure='fit="stretch", "crop" or "pad" in the dataset file',
            )  # fmt: skip
        picture = _resize(picture, (width, height), fit, background)
    return _as_dtype(np.asarray(picture), picture.mode, feature)


def shown(name: str) -> str:
    """A name that can be printed and stored: bytes that aren't UTF-8 stand escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _printable(path: Path) -> str:
    return shown(str(path))


def _upright(picture: Image.Image, path: Path) -> Image.Image:
    tag = picture.getexif().get(0x0112, 1)
    if tag not in range(1, 9):
        log.warning("illegal EXIF orientation %r counts as upright: %s", tag, _printable(path))
        return picture
    return ImageOps.exif_transpose(picture)


def _with_channels(
    picture: Image.Image, channels: int, feature: Feature, path: Path, background: tuple[int, int, int]
) -> Image.Image:
    """In mode L, RGB or RGBA for 8 bits a channel; in mode F for 16-bit and floating-point grey."""
    if picture.mode == "F":
        if feature.dtype != "float32" or channels != 1:
            raise SchemaError(
                "floating-point picture", file=_printable(path), expected="a float32 feature, one channel"
            )
        return picture
    if picture.mode.startswith("I"):
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise SchemaError(
                "32-bit picture",
                file=_printable(path),
                got=f"{values.min()} ... {values.max()}",
                expected="0 ... 65535",
            )
        if feature.dtype == "uint8" or channels != 1:
            return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8)).convert(MODES[channels])
        return Image.fromarray(values.astype(np.float32) / (65535 if feature.dtype == "float32" else 1))
    if picture.has_transparency_data and channels != 4:
        under = Image.new("RGBA", picture.size, (*background, 255))
        picture = Image.alpha_composite(under, picture.convert("RGBA"))
    return picture.convert(MODES[channels])


def _resize(picture: Image.Image, size: tuple[int, int], fit: Fit, background: tuple[int, int, int]) -> Image.Image:
    if fit == "stretch":
        return picture.resize(size, Image.Resampling.BILINEAR)
    if fit == "crop":
        return ImageOps.fit(picture, size, Image.Resampling.BILINEAR)
    colour = Image.new("RGB", (1, 1), background).convert("L" if picture.mode == "F" else picture.mode).getpixel((0, 0))
    return ImageOps.pad(picture, size, Image.Resampling.BILINEAR, color=colour)  # type: ignore[arg-type]


def _as_dtype(pixels: np.ndarray, mode: str, feature: Feature) -> np.ndarray:
    if mode == "F":
        made = np.rint(pixels).clip(0, 65535).astype(np.uint16) if feature.dtype == "uint16" else pixels
    elif feature.dtype == "uint16":
        made = pixels.astype(np.uint16) * 257
    elif feature.dtype == "float32":
        made = pixels.astype(np.float32) / np.float32(255)
    else:
        made = pixels
    return made.reshape(feature.shape)
