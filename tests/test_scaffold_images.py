from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import scaffold_samples as samples
from PIL import Image

from datasets.errors import DataFormatError, SchemaError
from tasks.scaffold_images import look_at_images, shape_of, split_trees
from tasks.scaffold_text import Place


def test_mixed_pictures(tmp_path: Path) -> None:
    sketch = look_at_images(Place(samples.pictures(tmp_path / "pets")), tmp_path / "pets")
    assert sketch.features["image"].shape == (32, 32, 3)
    assert sketch.features["label"].classes == ("cat", "dog")
    assert 'fit="crop"' in sketch.read
    assert (sketch.rows, sketch.counts, sketch.model) == (60, {"cat": 30, "dog": 30}, "cnn")
    assert sketch.left_out == ["2 files that are no pictures or in no class folder"]


@pytest.mark.parametrize(
    ("sizes", "modes", "shape", "fit"),
    [({(28, 28): 5}, {"L"}, (28, 28, 1), None), ({(28, 20): 5}, {"L", "RGB"}, (28, 20, 3), None),
     ({(300, 200): 5}, {"RGB"}, (64, 43, 3), "stretch"),
     ({(300, 200): 5, (70, 80): 1}, {"1", "I;16"}, (64, 64, 1), "crop"),
     ({(10, 10): 5, (12, 10): 4}, {"P"}, (16, 16, 3), "crop"),
     ({(40, 90): 5, (12, 10): 4}, {"RGB"}, (32, 32, 3), "crop")],
)  # fmt: skip
def test_shape_of_an_example(sizes: dict, modes: set[str], shape: tuple[int, ...], fit: str | None) -> None:
    feature, how = shape_of(Counter(sizes), modes)
    assert (feature.dtype, feature.shape, how) == ("uint8", shape, fit)


@pytest.mark.parametrize(
    ("folders", "splits"),
    [({"train", "test"}, {"test": "test", "train": "train"}), ({"train", "val"}, {"train": "train", "val": "test"}),
     ({"train", "valid", "test"}, {"test": "test", "train": "train", "valid": "val"}), ({"train", "cat"}, {}),
     ({"train"}, {}), ({"cat", "dog"}, {})],
)  # fmt: skip
def test_folders_that_are_splits(tmp_path: Path, folders: set[str], splits: dict[str, str]) -> None:
    for name in folders:
        samples.pictures(tmp_path / name, each=1)
    assert split_trees(tmp_path) == splits


def test_a_class_that_is_called_train_is_a_class(tmp_path: Path) -> None:
    samples.pictures(tmp_path / "all", each=1)
    (tmp_path / "all" / "cat").rename(tmp_path / "all" / "train")
    (tmp_path / "all" / "dog").rename(tmp_path / "all" / "test")
    assert split_trees(tmp_path / "all") == {}


def test_trees_of_splits_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name in ("train", "val"):
        samples.pictures(tmp_path / name, each=2)
    sketch = look_at_images(Place(tmp_path), tmp_path)
    assert sketch.splits == '{"train": Files("train/"), "test": Files("val/")}'
    assert 'under="train"' in sketch.read
    assert 'under="val"' in sketch.read
    assert sketch.rows == 8


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    folder = samples.pictures(tmp_path / "pets", each=1)
    (folder / "bird").mkdir()
    with pytest.raises(SchemaError, match="'bird' has no images"):
        look_at_images(Place(folder), folder)


def test_one_class_is_none(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "cat" / "1.png")
    with pytest.raises(SchemaError, match="one class only"):
        look_at_images(Place(tmp_path), tmp_path)


def test_a_picture_that_is_none_is_named(tmp_path: Path) -> None:
    folder = samples.pictures(tmp_path / "pets", each=1)
    (folder / "cat" / "bad.png").write_bytes(b"<html>")
    with pytest.raises(DataFormatError, match="not a picture") as caught:
        look_at_images(Place(folder), folder)
    assert caught.value.facts["file"].endswith("bad.png")
