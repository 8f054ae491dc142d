"""Folders of pictures and their pixels: what systems leave behind, names, modes, orientation, size, damage."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.errors import DataFormatError, SchemaError
from datasets.readers import images, pixels
from datasets.readers.pixels import read_image
from datasets.schema import Block, Feature

SMALL = Feature("uint8", (2, 3, 3))
GREY = Feature("uint8", (16, 16, 1))


def features(*classes: str, image: Feature = SMALL) -> dict[str, Feature]:
    return {"image": image, "label": Feature("int32", classes=classes)}


def picture(
    path: Path, colour: tuple[int, ...] | int = (9, 8, 7), mode: str = "RGB", size: tuple[int, int] = (3, 2)
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


def rows(blocks: list[Block]) -> list[tuple[str, int, int]]:
    return [(block.file, block.row, int(block.columns["label"][0])) for block in blocks]


# --- folders (C14)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    picture(tmp_path / "cat" / "1.png", (1, 2, 3))
    picture(tmp_path / "dog" / "deeper" / "1.JPG")
    picture(tmp_path / "__MACOSX" / "cat" / "._1.png")
    picture(tmp_path / "cat" / "._1.png")
    picture(tmp_path / "cat" / "@eaDir" / "1.png")
    for name in (".DS_Store", "cat/Thumbs.db", "cat/.DS_Store", "cat/notes.txt", "readme.md"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_leftovers_are_no_classes_and_no_pictures(pets: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        blocks = list(images.blocks(pets, features("bird", "cat", "dog")))
    assert rows(blocks) == [("cat/1.png", 0, 1), ("dog/deeper/1.JPG", 0, 2)]
    assert blocks[0].columns["image"].shape == (1, 2, 3, 3)
    assert blocks[0].columns["image"].dtype == np.uint8
    assert blocks[0].columns["label"].dtype == np.int32
    assert blocks[0].columns["image"][0, 1, 2].tolist() == [1, 2, 3]
    for fact in (
        "2 x hidden",
        "1 x Thumbs.db",
        "1 x .txt",
        "1 x .md outside of class folders",
        "1 x __MACOSX",
        "1 x @eaDir",
        "1 x .DS_Store",
    ):
        assert fact in caplog.text
    assert sum(images.find_images(pets).ignored.values()) == 8


def test_an_empty_class_folder_moves_no_index(pets: Path) -> None:
    (pets / "bird").mkdir()
    with pytest.raises(SchemaError, match="class folder 'bird' has no images"):
        next(images.blocks(pets, features("bird", "cat", "dog")))
    assert {name: len(found) for name, found in images.find_images(pets).classes.items()} == {
        "bird": 0,
        "cat": 1,
        "dog": 1,
    }


def test_folders_that_are_no_class_and_roots_without_pictures(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="folder 'dog' is no class"):
        next(images.blocks(pets, features("bird", "cat")))
    with pytest.raises(DataFormatError, match="0 images"):
        next(images.blocks(pets / "dog" / "deeper", features("cat")))
    with pytest.raises(DataFormatError, match="no folder of class folders"):
        next(images.blocks(pets, features("cat"), under="train"))


def test_under_a_folder_names_stay_relative_to_the_raw_folder(tmp_path: Path) -> None:
    picture(tmp_path / "test" / "dog" / "1.png")
    assert rows(list(images.blocks(tmp_path, features("cat", "dog"), under="test"))) == [("test/dog/1.png", 0, 1)]


# --- names (C18)


def test_class_folders_that_differ_only_by_unicode_form(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        picture(tmp_path / unicodedata.normalize(form, "café") / "1.png")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="differ only by Unicode form") as caught:
        images.find_images(tmp_path)
    assert "cafe\\u0301" in str(caught.value)


def test_a_class_is_found_in_either_unicode_form(tmp_path: Path) -> None:
    picture(tmp_path / unicodedata.normalize("NFD", "café") / "1.png")
    assert rows(list(images.blocks(tmp_path, features("猫", "café"))))[0][2] == 1


SCRIPT = """
import sys
from pathlib import Path
from datasets.readers import images
from datasets.schema import Feature
features = {"image": Feature("uint8", (2, 3, 3)), "label": Feature("int32", classes=("\\u732b",))}
for block in images.blocks(Path(sys.argv[1]), features):
    print(ascii(block.file), block.columns["label"][0], block.columns["image"].sum())
"""


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_of_any_bytes_under_any_locale(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "猫"
    picture(folder / "b.png")
    (folder / "b.png").rename(os.fsdecode(os.fsencode(folder) + b"/a\xff.png"))
    env = {**os.environ, "LC_ALL": locale}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env=env, capture_output=True, text=True, check=True,
        cwd=Path(images.__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.split() == ["'\\u732b/a\\\\xff.png'", "0", str(6 * (9 + 8 + 7))]


def test_a_fault_in_a_file_of_any_bytes_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "cat") + b"/a\xff.png")).write_bytes(b"nothing")
    with pytest.raises(DataFormatError) as caught:
        next(images.blocks(tmp_path, features("cat")))
    assert "a\\xff.png" in str(caught.value)
    assert "nothing" in str(caught.value)
    str(caught.value).encode()


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


# --- a table of paths


def table(folder: Path, text: str) -> list[Block]:
    (folder / "labels.csv").write_text(text)
    wanted = {**features("cat", "dog"), "age": Feature("float32")}
    return list(images.listed(folder, "labels.csv", wanted))


def test_a_table_of_paths_and_labels(tmp_path: Path) -> None:
    picture(tmp_path / "b" / "1.png", (1, 1, 1))
    picture(tmp_path / "2.png", (2, 2, 2))
    blocks = table(tmp_path, "path,label,age\n2.png,dog,1.5\nb/1.png,cat,3\n2.png,cat,2\n")
    assert rows(blocks) == [("2.png", 0, 1), ("b/1.png", 0, 0), ("2.png", 0, 0)]
    assert [float(block.columns["age"][0]) for block in blocks] == [1.5, 3, 2]
    assert [int(block.columns["image"].max()) for block in blocks] == [2, 1, 2]
    assert set(blocks[0].columns) == {"image", "label", "age"}


@pytest.mark.parametrize(
    ("line", "kind", "facts"),
    [
        ("3.png,dog,1", DataFormatError, ["isn't there", "3.png", "row: 1", "labels.csv"]),
        ("../a/2.png,dog,1", SchemaError, ["leads out", "row: 1"]),
        ("/2.png,dog,1", SchemaError, ["leads out", "row: 1"]),
        (",dog,1", SchemaError, ["leads out", "row: 1"]),
        ("2.png,cow,1", SchemaError, ["column 'label': 1 not a class", "row: 1", "'cow'"]),
        ("2.png,dog,", SchemaError, ["column 'age': 1 null", "row: 1"]),
    ],
)
def test_lines_that_are_wrong(tmp_path: Path, line: str, kind: type[Exception], facts: list[str]) -> None:
    picture(tmp_path / "2.png")
    with pytest.raises(kind) as caught:
        table(tmp_path, f"path,label,age\n2.png,dog,1\n{line}\n")
    for fact in facts:
        assert fact in str(caught.value)


def test_a_table_without_lines(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match="0 records"):
        table(tmp_path, "path,label,age\n")
