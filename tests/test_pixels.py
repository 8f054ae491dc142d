"""Pixels of a picture as the declared feature: modes, hidden colours, orientation, size, damage."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from pictures import SMALL, picture
from PIL import Image

from datasets.errors import DataFormatError, SchemaError
from datasets.readers import pixels
from datasets.readers.pixels import read_image
from datasets.schema import Feature

GREY = Feature("uint8", (16, 16, 1))


# --- modes (C16)


def test_sixteen_bits(tmp_path: Path) -> None:
    values = (np.arange(256) * 257).astype(np.uint16).reshape(16, 16)
    for name in ("deep.png", "deep.tif"):
        Image.fromarray(values).save(tmp_path / name)
        grey = read_image(tmp_path / name, GREY)
        assert grey.ravel().tolist() == list(range(256))
        assert read_image(tmp_path / name, Feature("uint16", (16, 16))).ravel().tolist() == values.ravel().tolist()
        scaled = read_image(tmp_path / name, Feature("float32", (16, 16, 1)))
        np.testing.assert_allclose(scaled.ravel(), np.arange(256) / 255, atol=1e-6)
        rgb = read_image(tmp_path / name, Feature("uint8", (16, 16, 3)))
        np.testing.assert_array_equal(rgb, np.repeat(grey, 3, axis=2))
    Image.fromarray(np.array([[128, 129, 385, 386, 65535]], np.uint16)).save(tmp_path / "round.png")
    assert read_image(tmp_path / "round.png", Feature("uint8", (1, 5))).tolist() == [[0, 1, 1, 2, 255]]
    Image.fromarray(np.array([[70000]], np.int32)).save(tmp_path / "wide.tif")
    with pytest.raises(SchemaError, match="32-bit picture"):
        read_image(tmp_path / "wide.tif", Feature("uint8", (1, 1)))


def test_palette_one_bit_and_cmyk(tmp_path: Path) -> None:
    palette = Image.new("P", (3, 2))
    palette.putpalette([10, 20, 30] + [0] * 765)
    palette.save(tmp_path / "p.png")
    assert read_image(tmp_path / "p.png", SMALL)[0, 0].tolist() == [10, 20, 30]
    assert read_image(tmp_path / "p.png", Feature("uint8", (2, 3, 1)))[0, 0, 0] == round(
        0.299 * 10 + 0.587 * 20 + 0.114 * 30
    )
    picture(tmp_path / "1.png", 1, "1")
    assert read_image(tmp_path / "1.png", Feature("uint8", (2, 3, 1))).min() == 255
    picture(tmp_path / "cmyk.jpg", (0, 255, 255, 0), "CMYK", (16, 16))
    red = read_image(tmp_path / "cmyk.jpg", Feature("uint8", (16, 16, 3)))
    assert np.abs(red.astype(int) - [255, 0, 0]).max() <= 3


def test_hidden_colours_never_show(tmp_path: Path) -> None:
    picture(tmp_path / "rgba.png", (255, 0, 0, 0), "RGBA")
    picture(tmp_path / "la.png", (77, 0), "LA")
    keyed = Image.new("P", (3, 2))
    keyed.putpalette([10, 20, 30] + [0] * 765)
    keyed.save(tmp_path / "keyed.png", transparency=0)
    for name in ("rgba.png", "la.png", "keyed.png"):
        assert read_image(tmp_path / name, SMALL)[0, 0].tolist() == [255, 255, 255]
        assert read_image(tmp_path / name, SMALL, background=(1, 2, 3))[0, 0].tolist() == [1, 2, 3]
    assert read_image(tmp_path / "rgba.png", Feature("uint8", (2, 3, 1)))[0, 0, 0] == 255
    assert read_image(tmp_path / "rgba.png", Feature("uint8", (2, 3, 4)))[0, 0].tolist() == [255, 0, 0, 0]
    picture(tmp_path / "half.png", (200, 100, 0, 128), "RGBA")
    half = read_image(tmp_path / "half.png", SMALL, background=(0, 0, 0))[0, 0]
    assert half.tolist() == [100, 50, 0]


def test_grey_and_colour_take_the_declared_channels(tmp_path: Path) -> None:
    picture(tmp_path / "l.png", 50, "L")
    picture(tmp_path / "rgb.png", (100, 0, 0))
    assert read_image(tmp_path / "l.png", SMALL)[0, 0].tolist() == [50, 50, 50]
    assert read_image(tmp_path / "rgb.png", Feature("uint8", (2, 3, 1))).shape == (2, 3, 1)
    assert read_image(tmp_path / "rgb.png", Feature("uint8", (2, 3))).tolist() == [[30] * 3] * 2
    assert read_image(tmp_path / "rgb.png", Feature("uint16", (2, 3, 3)))[0, 0].tolist() == [25700, 0, 0]
    assert read_image(tmp_path / "rgb.png", Feature("float32", (2, 3, 3)))[0, 0, 0] == np.float32(100) / np.float32(255)


def test_floating_point_pictures(tmp_path: Path) -> None:
    Image.fromarray(np.array([[-1.5, 1e6]], np.float32)).save(tmp_path / "f.tif")
    assert read_image(tmp_path / "f.tif", Feature("float32", (1, 2))).tolist() == [[-1.5, 1e6]]
    with pytest.raises(SchemaError, match="floating-point"):
        read_image(tmp_path / "f.tif", Feature("uint8", (1, 2)))


@pytest.mark.parametrize("feature", [Feature("int32", (2, 3)), Feature("uint8", (2, 3, 2)), Feature("uint8", (2,))])
def test_features_that_no_picture_can_be(tmp_path: Path, feature: Feature) -> None:
    with pytest.raises(SchemaError, match="declared feature"):
        read_image(picture(tmp_path / "a.png"), feature)


# --- orientation (C17)


@pytest.mark.parametrize(("tag", "shape"), [(6, (40, 20)), (None, (20, 40)), (1, (20, 40)), (9, (20, 40))])
def test_orientation(tmp_path: Path, caplog: pytest.LogCaptureFixture, tag: int | None, shape: tuple[int, int]) -> None:
    values = np.zeros((20, 40, 3), np.uint8)
    values[:10, :20] = 255  # top left
    exif = Image.Exif()
    if tag is not None:
        exif[0x0112] = tag
    Image.fromarray(values).save(tmp_path / "a.jpg", exif=exif, quality=95)
    with caplog.at_level(logging.WARNING):
        got = read_image(tmp_path / "a.jpg", Feature("uint8", (*shape, 3)))
    corners = (got[2, 2, 0] > 128, got[2, -3, 0] > 128, got[-3, 2, 0] > 128)
    assert corners == ((False, True, False) if tag == 6 else (True, False, False))
    assert ("illegal EXIF orientation 9" in caplog.text) == (tag == 9)
    ignored = read_image(tmp_path / "a.jpg", Feature("uint8", (20, 40, 3)), orient=False)
    assert ignored[2, 2, 0] > 128


# --- size


def test_another_size_is_refused_or_fitted(tmp_path: Path) -> None:
    path = tmp_path / "wide.png"
    values = np.zeros((10, 30, 3), np.uint8)
    values[:, :10] = (255, 0, 0)
    values[:, 10:20] = (0, 255, 0)
    Image.fromarray(values).save(path)
    square = Feature("uint8", (10, 10, 3))
    with pytest.raises(SchemaError, match="another size") as caught:
        read_image(path, square)
    assert "(10, 30, 3)" in str(caught.value)
    assert "(10, 10, 3)" in str(caught.value)
    assert read_image(path, square, fit="crop").reshape(-1, 3).tolist() == [[0, 255, 0]] * 100
    stretched = read_image(path, square, fit="stretch")
    assert (stretched[0, 0].tolist(), stretched[0, 4].tolist(), stretched[0, 9].tolist()) == (
        [255, 0, 0],
        [0, 255, 0],
        [0, 0, 0],
    )
    padded = read_image(path, square, fit="pad", background=(9, 9, 9))
    assert padded[0, 0].tolist() == padded[9, 9].tolist() == [9, 9, 9]
    assert padded[4, 0].tolist() == [255, 0, 0]
    grey = read_image(path, Feature("uint8", (10, 10, 1)), fit="pad", background=(9, 9, 9))
    assert grey[0, 0, 0] == 9


# --- damage


def test_damaged_pictures_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    feature = Feature("uint8", (64, 64, 3))
    for ending in ("png", "jpg"):
        path = tmp_path / f"a.{ending}"
        Image.fromarray(noise).save(path)
        path.write_bytes(path.read_bytes()[:-2000])
        with pytest.raises(DataFormatError, match="damaged picture") as caught:
            read_image(path, feature)
        assert str(path) in str(caught.value)
    (tmp_path / "page.png").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(DataFormatError, match="not a picture") as caught:
        read_image(tmp_path / "page.png", feature)
    assert "<!DOC" in str(caught.value)
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataFormatError, match="not a picture"):
        read_image(tmp_path / "empty.png", feature)
    Image.fromarray(noise).save(tmp_path / "big.png")
    monkeypatch.setattr(pixels, "MOST_PIXELS", 64 * 64 - 1)
    with pytest.raises(DataFormatError, match="too large"):
        read_image(tmp_path / "big.png", feature)


def test_the_first_frame_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (3, 2), colour) for colour in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif", SMALL)[0, 0].tolist() == [255, 0, 0]
