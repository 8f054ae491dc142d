from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from datasets.schema import Columns
from tasks import ahead
from tasks.ahead import DEPTH, depth_here, placed_ahead


def batches(count: int, log: list[str]) -> Iterator[Columns]:
    for i in range(count):
        log.append(f"made {i}")
        yield {"x": np.full(3, i)}


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_batch_comes_once_in_order_beside_itself(depth: int, count: int) -> None:
    pairs = list(placed_ahead(batches(count, []), depth, lambda batch: {"x": batch["x"] * 10}))
    assert [int(host["x"][0]) for host, _ in pairs] == list(range(count))
    assert [int(placed["x"][0]) for _, placed in pairs] == [i * (10 if depth else 1) for i in range(count)]


def test_so_many_are_on_their_way_before_the_step_asks_and_no_more() -> None:
    log: list[str] = []

    def put(batch: Columns) -> Columns:
        log.append(f"put {int(batch['x'][0])}")
        return batch

    pairs = placed_ahead(batches(9, log), 2, put)
    next(pairs)
    assert log == ["made 0", "put 0", "made 1", "put 1", "made 2", "put 2"]
    next(pairs)
    assert log[6:] == ["made 3", "put 3"]


def test_without_depth_the_hosts_own_arrays_are_given_when_they_are_asked_for() -> None:
    log: list[str] = []
    host, placed = next(placed_ahead(batches(3, log), 0))
    assert placed is host
    assert log == ["made 0"]


def test_what_lies_on_the_device_is_not_the_memory_of_another_batch() -> None:
    pairs = list(placed_ahead(batches(6, []), 3))
    assert all(isinstance(placed["x"], jax.Array) for _, placed in pairs)
    assert [np.asarray(placed["x"]).tolist() for _, placed in pairs] == [[i] * 3 for i in range(6)]
    assert len({host["x"].ctypes.data for host, _ in pairs}) == 6


def test_an_error_of_a_batch_passes_through() -> None:
    def broken() -> Iterator[Columns]:
        yield {"x": np.zeros(1)}
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        list(placed_ahead(broken(), 2))


def test_a_cpu_needs_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend, depth in {"cpu": 0, "gpu": DEPTH, "tpu": DEPTH}.items():
        monkeypatch.setattr(ahead.jax, "default_backend", lambda backend=backend: backend)
        assert depth_here() == depth
