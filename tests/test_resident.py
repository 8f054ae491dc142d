from __future__ import annotations

import jax
import numpy as np
import pytest

from datasets.errors import PipelineError, SchemaError
from datasets.schema import Columns, Feature
from tasks import resident
from tasks.order import Order
from tasks.pipeline import Pipeline
from tasks.resident import Resident, bytes_of

SIZE = 203


class Memory:
    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.features = {name: Feature(v.dtype.name, v.shape[1:]) for name, v in columns.items()}

    def __len__(self) -> int:
        return len(self.columns["id"])

    def read(self, ids: np.ndarray) -> Columns:
        return {name: values[ids] for name, values in self.columns.items()}


@pytest.fixture
def source() -> Memory:
    random = np.random.default_rng(0)
    return Memory({
        "image": random.integers(0, 256, (SIZE, 4, 3, 1), dtype=np.uint8), "id": np.arange(SIZE, dtype=np.int32),
        "x": random.normal(size=(SIZE, 2)).astype(np.float32),
    })  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 64, 4096])
def test_the_batches_of_any_order_are_the_same_as_the_hosts(
    source: Memory, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(resident, "_ROWS_AT_ONCE", at_once)
    placed = Resident(source)
    for order in (Order(SIZE, 16, 3), Order(SIZE, 16, 3, block=8, window=32), Order(SIZE, 16, 3, reader=1, readers=2)):
        host, device = (Pipeline(s, order, inputs="image", digest="", split="train") for s in (source, placed))
        with device.iterate(9, 15) as batches:
            for step, batch in enumerate(batches, 9):
                for name, expected in host.batch(step).items():
                    assert isinstance(batch[name], jax.Array)
                    assert batch[name].dtype == expected.dtype
                    np.testing.assert_array_equal(batch[name], expected)


def test_a_batch_is_no_window_on_the_split(source: Memory) -> None:
    placed = Resident(source)
    first = placed.read(np.arange(5))["id"]
    first.delete()
    assert placed.read(np.arange(5))["id"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ids", [[-1], [SIZE], [0, SIZE + 5]])
def test_rows_that_do_not_exist(source: Memory, ids: list[int]) -> None:
    with pytest.raises(IndexError, match=str(SIZE)):
        Resident(source).read(np.array(ids))


def test_every_value_is_checked_when_it_is_placed(source: Memory) -> None:
    source.columns["x"][150, 1] = np.nan
    with pytest.raises(SchemaError) as caught:
        Resident(source)
    assert (caught.value.facts["field"], caught.value.facts["record"]) == ("x", 150)
    with pytest.raises(SchemaError, match="id"):
        Resident(Memory({"id": np.array([1, 2**40])}))


def test_large_splits_are_refused(source: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bytes_of(source) == SIZE * (12 + 4 + 8)
    monkeypatch.setattr(resident, "MOST_BYTES", bytes_of(source) - 1)
    with pytest.raises(PipelineError, match="too large"):
        Resident(source)
