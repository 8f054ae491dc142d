from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import toy
from digit_files import write_digits

from datasets.errors import ParameterError, SchemaError
from tasks.scaffold import RECORD, first_block
from tasks.scaffold_idx import look_at_idx, pairs_of
from tasks.scaffold_look import look
from tasks.scaffold_text import Place, render


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        values = np.arange(20) % 2 if "label" in name else np.zeros((20, 5, 5))
        (folder / name).write_bytes(toy.idx_bytes(values))
    return folder


def test_the_files_of_mnist_are_two_splits(tmp_path: Path) -> None:
    sketch = look(write_digits(tmp_path), None)
    assert (sketch.rows, sketch.model, len(sketch.features["label"].classes)) == (240, "cnn", 10)
    assert sketch.splits == '{"train": Files("train-images-idx3-ubyte"), "test": Files("t10k-images-idx3-ubyte")}'
    block = first_block(render("digits", sketch, RECORD), "digits", tmp_path)
    assert block.columns["image"].shape[1:] == (28, 28, 1)


def test_one_pair_is_dealt_out(tmp_path: Path) -> None:
    write(tmp_path, "images.idx", "labels.idx")
    assert pairs_of(tmp_path, "") == {"": ("images.idx", "labels.idx")}
    sketch = look_at_idx(Place(tmp_path), tmp_path)
    assert sketch.splits is None
    assert "ByFraction" in render("digits", sketch, RECORD)


@pytest.mark.parametrize(
    "names",
    [("a-images-idx3-ubyte",), ("a-images-idx3-ubyte", "b-labels-idx1-ubyte"),
     ("a-images.idx", "a-labels.idx", "b-images.idx", "b-labels.idx"),
     ("train-images.idx", "train-labels.idx", "more.idx")],
)  # fmt: skip
def test_files_that_do_not_pair_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match="belong together") as caught:
        pairs_of(write(tmp_path, *names), "")
    assert names[0] in caught.value.facts["got"]


def test_labels_that_are_no_classes_and_a_file_alone(tmp_path: Path) -> None:
    write(tmp_path, "images.idx", "labels.idx")
    (tmp_path / "labels.idx").write_bytes(toy.idx_bytes(np.full(20, 3)))
    with pytest.raises(SchemaError, match="no classes"):
        look(tmp_path, None)
    with pytest.raises(ParameterError) as caught:
        look(tmp_path / "images.idx", None)
    assert "folder of the files" in str(caught.value.cure)
