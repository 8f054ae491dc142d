from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.errors import DataFormatError, ParameterError, SchemaError
from tasks.scaffold_arrays import classes_of, look_at_arrays, pairs_of
from tasks.scaffold_text import Place, Sketch

X, Y = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 2, 0, 1, 2])


def look(folder: Path, label: str | None = None, **arrays: np.ndarray) -> Sketch:
    np.savez(folder / "a.npz", **arrays)  # type: ignore[arg-type]
    return look_at_arrays(Place(folder, "a.npz", where="a.npz"), folder, label)


def test_pictures_and_labels(tmp_path: Path) -> None:
    sketch = look(tmp_path, x=X, y=Y, ids=np.arange(6))
    assert (sketch.features["inputs"].dtype, sketch.features["inputs"].shape) == ("uint8", (4, 4, 1))
    assert sketch.features["label"].classes == ("0", "1", "2")
    assert (sketch.model, sketch.splits, sketch.rows) == ("cnn", None, 6)
    assert sketch.left_out == ["array ids int64 [6]"]


def test_train_and_test(tmp_path: Path) -> None:
    sketch = look(tmp_path, x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3])
    assert sketch.splits == '{"train": Rows(0, 6), "test": Rows(6, 9)}'
    assert sketch.read.count("yield from") == 2


def test_numbers_are_standardised(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sketch = look(tmp_path, data=random.normal(5, 2, (50, 3)), target=np.arange(50) % 2)
    assert (sketch.features["inputs"].dtype, sketch.model) == ("float32", "mlp")
    assert sketch.transforms == '    transforms={"inputs": Standardise()},'
    assert sketch.imports["datasets.transforms"] == {"Standardise"}
    assert look(tmp_path, x=X, y=Y).transforms == ""  # bytes are scaled by the model


@pytest.mark.parametrize(
    ("names", "label", "pair"),
    [(("x", "y"), None, ("x", "y")), (("foo", "bar"), None, ("foo", "bar")),
     (("images", "labels", "z"), None, ("images", "labels")), (("foo", "bar"), "bar", ("foo", "bar"))],
)  # fmt: skip
def test_which_array_is_what(names: tuple[str, ...], label: str | None, pair: tuple[str, str]) -> None:
    arrays = dict(zip(names, (X, Y, Y), strict=False))
    assert pairs_of(arrays, label, "a.npz") == {"": pair}


@pytest.mark.parametrize(
    ("names", "label"), [(("a", "b", "c"), None), (("x", "y", "label"), None), (("x",), None), (("x", "y"), "z")]
)
def test_what_cannot_be_told(names: tuple[str, ...], label: str | None) -> None:
    arrays = dict(zip(names, (X, Y, Y), strict=False))
    with pytest.raises(ParameterError):
        pairs_of(arrays, label, "a.npz")


def test_one_vector_of_whole_numbers_beside_arrays_is_the_label() -> None:
    pixels, weights = np.zeros((50, 8, 8), np.uint8), np.linspace(0, 1, 50)
    arrays = {"weights": weights, "pixels": pixels, "kind": np.arange(50) % 3}
    assert pairs_of(arrays, None, "a.npz") == {"": ("pixels", "kind")}
    assert pairs_of({**arrays, "edges": np.arange(7)}, None, "a.npz") == {"": ("pixels", "kind")}  # of other lengths
    two_labels, two_inputs = {**arrays, "night": np.arange(50)}, {**arrays, "depth": pixels}
    for unclear in (two_labels, two_inputs, {"pixels": pixels, "weights": weights, "w": weights}):
        with pytest.raises(ParameterError, match="which the labels") as caught:
            pairs_of(unclear, None, "a.npz")
        assert "--label" in str(caught.value.cure)
    assert pairs_of(two_labels, "night", "a.npz") == {"": ("pixels", "night")}


def test_names_of_classes() -> None:
    assert classes_of(np.array(["b", "a"]), "") == ("a", "b")
    assert classes_of(np.array([b"b", b"a"]), "") == ("a", "b")
    assert classes_of(np.array([10, 9, 1.0]), "") == ("1", "9", "10")


@pytest.mark.parametrize("labels", [np.array([0.5, 1.0]), np.array([1, 1]), np.arange(2000), np.array([np.nan, 1.0])])
def test_labels_that_are_no_classes(labels: np.ndarray) -> None:
    with pytest.raises(SchemaError, match="labels are class names"):
        classes_of(labels, "a.npz")


@pytest.mark.parametrize("x", [X[:5], np.array(["a"] * 6)])
def test_arrays_that_are_no_examples(tmp_path: Path, x: np.ndarray) -> None:
    with pytest.raises(SchemaError):
        look(tmp_path, x=x, y=Y)


def test_pickles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError):
        look(tmp_path, x=np.array([{}] * 6, dtype=object), y=Y)
