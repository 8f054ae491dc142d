from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy
from pictures import SMALL, picture

from datasets.errors import GristmillError
from datasets.readers import arrays, delimited, idx, images, jsonl, parquet
from datasets.readers.unlabelled import left_out, looked_for, stand_in, without_label
from datasets.schema import Block, Feature

TABLE = {"x": Feature("float32"), "label": Feature("int32", classes=("no", "yes"))}
PICTURE = {"image": SMALL, "label": Feature("int32", classes=("cat", "dog"))}


def csv(raw: Path) -> Iterator[Block]:
    (raw / "t.csv").write_text("x\n1\n2\n")
    return delimited.blocks(raw, "t.csv", TABLE)


def json_lines(raw: Path) -> Iterator[Block]:
    (raw / "t.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    return jsonl.blocks(raw, "t.jsonl", TABLE)


def parquet_file(raw: Path) -> Iterator[Block]:
    pq.write_table(pa.table({"x": [1.0, 2.0]}), raw / "t.parquet")
    return parquet.blocks(raw, "t.parquet", TABLE, columns={"label": "kind"})


def npz(raw: Path) -> Iterator[Block]:
    np.savez(raw / "t.npz", x=np.array([1.0, 2.0]))
    return arrays.blocks(raw, "t.npz", TABLE)


def npy(raw: Path) -> Iterator[Block]:
    np.save(raw / "x.npy", np.array([1.0, 2.0]))
    return arrays.blocks(raw, "", TABLE)


def idx_file(raw: Path) -> Iterator[Block]:
    (raw / "i").write_bytes(toy.idx_bytes(np.arange(2 * 3 * 4).reshape(2, 3, 4)))
    return idx.blocks(raw, images="i", labels="l", rows=1)


def flat_folder(raw: Path) -> Iterator[Block]:
    for name in ("b.png", "a.png"):
        picture(raw / name)
    return images.blocks(raw, PICTURE)


def listed(raw: Path) -> Iterator[Block]:
    for name in ("b.png", "a.png"):
        picture(raw / name)
    (raw / "t.csv").write_text("path\na.png\nb.png\n")
    return images.listed(raw, "t.csv", PICTURE)


READERS = [csv, json_lines, parquet_file, npz, npy, idx_file, flat_folder, listed]


@pytest.mark.parametrize("read", READERS)
def test_readers_need_no_label(tmp_path: Path, read: Callable[[Path], Iterator[Block]]) -> None:
    with without_label("label"):
        blocks = list(read(tmp_path))
    inputs = np.concatenate([next(c for n, c in block.columns.items() if n != "label") for block in blocks])
    labels = np.concatenate([block.columns["label"] for block in blocks])
    assert len(inputs) == 2
    assert (labels.dtype, labels.tolist()) == (np.int32, [0, 0])
    if inputs.ndim == 1:
        assert inputs.tolist() == [1, 2]


@pytest.mark.parametrize("read", READERS)
def test_otherwise_it_is_missed(tmp_path: Path, read: Callable[[Path], Iterator[Block]]) -> None:
    with pytest.raises(GristmillError):
        list(read(tmp_path))


def test_flat_pictures_come_by_name(tmp_path: Path) -> None:
    with without_label("label"):
        assert [block.file for block in flat_folder(tmp_path)] == ["a.png", "b.png"]


def test_a_label_that_is_there_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label\n1,maybe\n")
    with without_label("label"):
        (block,) = delimited.blocks(tmp_path, "t.csv", TABLE)
    assert block.columns["label"].tolist() == [0]


def test_a_reader_of_ones_own_can_ask() -> None:
    assert not left_out("label")
    with without_label("label"):
        assert (left_out("label"), left_out("x")) == (True, False)
        assert looked_for(TABLE) == {"x": TABLE["x"]}
    assert looked_for(TABLE) == TABLE
    assert stand_in(PICTURE["image"], 3).shape == (3, 2, 3, 3)
