"""Folders and tables of pictures: what systems leave behind, classes, names, paths."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from pictures import SMALL, picture

from datasets.errors import DataFormatError, SchemaError
from datasets.readers import images
from datasets.schema import Block, Feature


def features(*classes: str, image: Feature = SMALL) -> dict[str, Feature]:
    return {"image": image, "label": Feature("int32", classes=classes)}


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


def test_leftovers_are_no_classes_and_no_pictures(pets: Path, said: pytest.LogCaptureFixture) -> None:
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
        assert fact in said.text
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
