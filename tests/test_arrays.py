"""NumPy files: streamed rows, strict lengths and shapes, no pickles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.errors import DataFormatError, FetchError, SchemaError
from datasets.readers import arrays
from datasets.schema import Block, Columns, Feature

FEATURES = {"image": Feature("uint8", (2, 3, 1)), "label": Feature("int32", classes=("a", "b"))}
IMAGE = np.arange(42, dtype=np.uint8).reshape(7, 2, 3)
LABEL = np.array([0, 1, 0, 1, 1, 0, 1])


def together(blocks: list[Block]) -> Columns:
    return {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}


def read(folder: Path, where: str = "t.npz", features: dict[str, Feature] = FEATURES, **more: Any) -> list[Block]:
    return list(arrays.blocks(folder, where, features, **more))


def npz(folder: Path, **members: np.ndarray) -> Path:
    np.savez(folder / "t.npz", **members)  # type: ignore[arg-type]
    return folder / "t.npz"


Save = Callable[..., None]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_blocks_of_an_npz(tmp_path: Path, save: Save, rows: int) -> None:
    save(tmp_path / "t.npz", x=IMAGE, label=LABEL)
    blocks = read(tmp_path, columns={"image": "x"}, rows=rows)
    assert [(block.file, block.row) for block in blocks] == [("t.npz", row) for row in range(0, 7, rows)]
    got = together(blocks)
    np.testing.assert_array_equal(got["image"], IMAGE[..., None])
    np.testing.assert_array_equal(got["label"], LABEL)
    assert (got["image"].dtype, got["label"].dtype) == (np.uint8, np.int32)


def test_a_folder_of_npy_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "image.npy", IMAGE)
    np.save(tmp_path / "in" / "y.npy", LABEL)
    blocks = read(tmp_path, "in", columns={"label": "y.npy"}, rows=4)
    assert [(block.file, block.row) for block in blocks] == [("in/image.npy", 0), ("in/image.npy", 4)]
    np.testing.assert_array_equal(together(blocks)["image"], IMAGE[..., None])
    with pytest.raises(FetchError, match=r"label\.npy"):
        read(tmp_path, "in")


@pytest.mark.parametrize(
    ("image", "label"),
    [
        (np.asfortranarray(IMAGE), LABEL),
        (IMAGE[:, None, :, :, None], LABEL[:, None]),
        (IMAGE.astype(">i8"), LABEL.astype(np.uint8)),
        (IMAGE.astype(np.float64), LABEL.astype(np.float32)),
        (IMAGE, np.array(["a", "b"])[LABEL]),
        (IMAGE, np.array([b"a", b"b"])[LABEL]),
    ],
)
def test_layouts_and_types_that_fit(tmp_path: Path, image: np.ndarray, label: np.ndarray) -> None:
    npz(tmp_path, image=image, label=label)
    got = together(read(tmp_path, rows=3))
    np.testing.assert_array_equal(got["image"], IMAGE[..., None])
    np.testing.assert_array_equal(got["label"], LABEL)
    assert got["image"].flags.c_contiguous


def changed(at: tuple[int, ...], value: float) -> np.ndarray:
    made = IMAGE.astype(np.float64)
    made[at] = value
    return made


@pytest.mark.parametrize(
    ("image", "label", "facts"),
    [
        (IMAGE[:6], LABEL, ["different numbers of rows", "'image': 6", "'label': 7"]),
        (IMAGE.reshape(7, 3, 2), LABEL, ["another shape", "[n, 3, 2]", "[n, 2, 3, 1]"]),
        (changed((5, 0, 1), 0.5), LABEL, ["image", "1 not a whole number", "row: 5"]),
        (changed((5, 0, 1), 256), LABEL, ["1 outside of uint8", "row: 5", "256.0"]),
        (changed((6, 1, 2), np.nan), LABEL, ["1 nan", "row: 6"]),
        (IMAGE, np.array(["a", "b", "a", "b", "c", "a", "b"]), ["label", "1 not a class", "'c' at row 4"]),
        (IMAGE, LABEL.astype(complex), ["another type", "complex128"]),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, image: np.ndarray, label: np.ndarray, facts: list[str]) -> None:
    npz(tmp_path, image=image, label=label)
    with pytest.raises(SchemaError) as caught:
        read(tmp_path, rows=2)
    for fact in facts:
        assert fact in str(caught.value)


def test_numbers_stand_for_classes_as_in_tables(tmp_path: Path) -> None:
    years = Feature("int32", classes=("2023", "2022"))
    for values in (np.array([2022, 2023], ">i4"), np.array([2022.0, 2023.0]), np.array(["2022", "2023"])):
        npz(tmp_path, y=values)
        assert together(read(tmp_path, features={"y": years}))["y"].tolist() == [1, 0]
    npz(tmp_path, y=np.array([1, 0]))
    with pytest.raises(SchemaError, match="2 not a class"):
        read(tmp_path, features={"y": years})


def test_a_label_of_several_values_a_row(tmp_path: Path) -> None:
    pair = {"y": Feature("int32", (2,), classes=("a", "b"))}
    npz(tmp_path, y=np.array([["a", "b"], ["b", "b"]]))
    assert together(read(tmp_path, features=pair))["y"].tolist() == [[0, 1], [1, 1]]
    npz(tmp_path, y=np.array([["a", "b"], ["b", "c"]]))
    with pytest.raises(SchemaError, match="'c' at row 1"):
        read(tmp_path, features=pair)


def test_nothing_follows_a_fault(tmp_path: Path) -> None:
    npz(tmp_path, image=changed((2, 0, 0), 0.5), label=LABEL)
    blocks = arrays.blocks(tmp_path, "t.npz", FEATURES, rows=1)
    assert [next(blocks).row, next(blocks).row] == [0, 1]
    with pytest.raises(SchemaError, match="not a whole number"):
        next(blocks)


def test_fill_stands_for_nan(tmp_path: Path) -> None:
    npz(tmp_path, x=np.array([1.0, np.nan]))
    assert together(read(tmp_path, features={"x": Feature("float32")}, fill={"x": 7}))["x"].tolist() == [1, 7]


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (tmp_path / "sprung").touch, ()

    npz(tmp_path, image=np.array([Trap()] * 7, object), label=LABEL)
    with pytest.raises(DataFormatError, match="pickled"):
        read(tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_missing_and_empty_arrays(tmp_path: Path) -> None:
    npz(tmp_path, pixels=IMAGE, label=LABEL)
    with pytest.raises(SchemaError, match="array 'image' not found") as caught:
        read(tmp_path)
    assert "pixels, label" in str(caught.value)
    npz(tmp_path, image=IMAGE[:0], label=LABEL[:0])
    with pytest.raises(DataFormatError, match="0 records"):
        read(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = npz(tmp_path, image=IMAGE, label=LABEL)
    whole = path.read_bytes()
    at = whole.index(IMAGE.tobytes())
    for data, fact in (
        (whole[:-30], "damaged npz"),
        (whole[:at] + b"\xff" + whole[at + 1 :], "CRC"),
        (b"<html>", "damaged npz"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataFormatError, match=fact) as caught:
            read(tmp_path)
        assert "t.npz" in str(caught.value)
    np.save(tmp_path / "image.npy", IMAGE)
    np.save(tmp_path / "label.npy", LABEL)
    whole = (tmp_path / "image.npy").read_bytes()
    for data, fact in (
        (whole[:-1], "truncated"),
        (whole + b"x", "more bytes"),
        (b"nothing at all", "not a NumPy file"),
    ):
        (tmp_path / "image.npy").write_bytes(data)
        with pytest.raises(DataFormatError, match=fact) as caught:
            read(tmp_path, "")
        assert "image.npy" in str(caught.value)
