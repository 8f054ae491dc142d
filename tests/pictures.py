"""What the tests of pictures share: files of one colour, and the feature that fits them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from datasets.schema import Feature

SMALL = Feature("uint8", (2, 3, 3))


def picture(
    path: Path, colour: tuple[int, ...] | int = (9, 8, 7), mode: str = "RGB", size: tuple[int, int] = (3, 2)
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path
