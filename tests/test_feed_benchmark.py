"""The benchmark of the feed in miniature: every measure that the goals name is there, with its goal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.schema import Columns
from tasks.benchmark import Measure
from tasks.benchmarks import feed


def few(columns: Columns, rows: int) -> Columns:
    return {name: values[:rows] for name, values in columns.items()}


@pytest.fixture(scope="module")
def measures() -> Iterator[list[Measure]]:
    patch = pytest.MonkeyPatch()
    mnist, table = few(feed.mnist_sized(), 2048), few(feed.tabular(), 4096)
    original, pictures = feed.tutorials, feed.pictures

    def tutorials(rows: Columns) -> Iterator[Any]:
        """Labels of the settings that have goals; only one that needs no workers is measured."""
        for label in ("0 workers", "4 workers"):
            only = next(original(rows))
            patch.setattr(only, "label", label)
            yield only

    for name, value in {
        "ROUNDS": 2, "SECONDS": 0.01, "SETTLE": 0, "SLOW_ROUNDS": 1, "SLOW_SECONDS": 0.01, "mnist_sized": lambda: mnist,
        "tabular": lambda: table, "tutorials": tutorials, "pictures": lambda count: pictures(128),
    }.items():  # fmt: skip
        patch.setattr(feed, name, value)
    patch.delenv("GRISTMILL_PEERS", raising=False)
    yield feed.run()
    patch.undo()


@pytest.mark.parametrize(
    ("start", "against", "goal"),
    [
        ("ram_mnist: memory-mapped columns, batch 512, 0 threads", "NumPy", ">= 0.9"),
        ("ram_mnist:", "Grain DataLoader at its best", ">= 150"),
        ("ram_mnist:", "Grain DataLoader, batch 64, 4 workers", ">= 400"),
        ("disk_mnist: ArrayRecord, window 65536, batch 512, 0 threads", "bare reads", ">= 0.9"),
        ("ram_mnist first batch", "", "< 0.5"),
        ("ram_jpeg:", "bare Pillow decode", ">= 0.9"),
        ("augment Shift", "", "<= 1"),
        ("ram_tabular:", "NumPy", ""),
        ("ram_mnist_resident", "memory-mapped columns", ""),
    ],
)
def test_each_goal_has_its_measure(measures: list[Measure], start: str, against: str, goal: str) -> None:
    (found,) = [m for m in measures if m.name.startswith(start) and m.against.startswith(against)
                and (against or not m.against)]  # fmt: skip
    assert found.goal == goal
    assert found.value > 0
    if against:
        assert found.ratio is not None
        assert found.spread is not None
        assert found.spread[0] <= found.ratio <= found.spread[1]


def test_peers_that_are_not_there_are_named_and_not_guessed(measures: list[Measure]) -> None:
    missing = [m for m in measures if m.against.endswith(": not installed")]
    assert len(missing) == 2 * len(feed.PEER_LABELS) + 1
    assert all(m.ratio is None and not m.goal for m in missing)


def test_every_measure_states_tier_batch_and_threads(measures: list[Measure]) -> None:
    for measure in measures:
        if measure.name.startswith(("ram_", "disk_")) and "first batch" not in measure.name:
            assert "batch" in measure.name
            assert "thread" in measure.name


def test_pictures_of_the_benchmark_decode_to_their_pixels() -> None:
    source = feed.Jpegs(feed.pictures(3))
    rows = source.read(np.array([2, 0]))
    np.testing.assert_array_equal(rows["inputs"][1], feed.decode(source.encoded[0]))
    assert rows["inputs"].shape == (2, 128, 128, 3)


def test_a_peers_interpreter_that_ends_is_named_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_PEERS", "/bin/false")
    with feed.Peers(tmp_path, 64) as peers:
        assert [peers.missing(name) for name in ("torch_items", "torch_batches")] == [True, True]
        assert peers.ask("torch_items", 1.0) == {"missing": "the interpreter ended"}


def test_a_peers_interpreter_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o700)
    monkeypatch.setenv("GRISTMILL_PEERS", str(hanging))
    monkeypatch.setattr(feed, "LEAVE", 0.1)
    with feed.Peers(tmp_path, 64) as peers:
        process = peers._process
    assert process is not None
    assert process.returncode == -9
