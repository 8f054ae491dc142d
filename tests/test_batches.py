"""Workers put away: whatever they were doing, and whatever they had in shared memory. Faults: see test_pipeline.py."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import grain
import numpy as np
import pytest
from test_pipeline import BAD, HANG, SIZE, Memory, make, rows, tripping

from datasets.errors import PipelineError
from tasks import batches as module
from tasks.batches import Batches
from tasks.order import Order

TOKEN = "0123456789ab"


def shared() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"gristmill-{TOKEN}-*")]


@dataclass(frozen=True)
class Stuck:
    """Never comes back from the image whose first pixel is 0."""

    draws: ClassVar[int] = 0

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        if (images[:, 0, 0, 0] == 0).any():
            time.sleep(600)
        return images


def test_a_worker_that_never_comes_back_is_ended_too() -> None:
    columns, order = rows(), Order(SIZE, 16, 3)
    columns["image"][order.ids(1)[1][0], 0, 0, 0] = 0
    before = multiprocessing.active_children()
    with make(Memory(columns), augment=(Stuck(),)).iterate(0, 12, workers=1, prefetch=1) as batches:
        next(batches)
        started = time.monotonic()
    assert time.monotonic() - started < HANG
    assert multiprocessing.active_children() == before


def test_what_was_made_and_never_asked_for_leaves_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.secrets, "token_hex", lambda count: TOKEN)
    with make(Memory(rows())).iterate(0, 12, workers=1, prefetch=6) as batches:
        next(batches)  # no worker starts before
        deadline = time.monotonic() + HANG
        while not shared():
            assert time.monotonic() < deadline, "the worker made nothing"
            time.sleep(0.05)
    assert shared() == []


def test_what_a_killed_worker_had_made_leaves_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.secrets, "token_hex", lambda count: TOKEN)
    pipeline, step = tripping("kill")
    with pytest.raises(PipelineError), pipeline.iterate(step - 3, 12, workers=1, prefetch=6) as batches:
        list(batches)
    assert shared() == []


def test_what_has_no_size_yet_when_its_worker_is_killed_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.secrets, "token_hex", lambda count: TOKEN)
    Path(f"/dev/shm/gristmill-{TOKEN}-empty").touch()
    batches = make(Memory(rows())).iterate(0, 12, workers=1)  # no worker starts before the first batch
    batches.close()
    assert shared() == []


def test_without_threads_and_workers_an_element_is_made_when_it_is_asked_for() -> None:
    made: list[int] = []
    with Batches(grain.MapDataset.range(3).map(lambda i: made.append(int(i)) or {"i": np.array([i])})) as batches:
        assert made == []
        assert next(batches)["i"] == [0]
        assert made == [0]
        assert [int(batch["i"][0]) for batch in batches] == [1, 2]
    assert made == [0, 1, 2]


def test_workers_and_their_faults_inside_a_prefect_task(prefect_server: str) -> None:
    """A task that is submitted runs in a thread of Prefect's, where Grain alone misses absl's flags."""
    from prefect import flow, task

    before, (good, bad) = multiprocessing.active_children(), ("good", "bad")

    @task(persist_result=False)
    def read(what: str) -> list[int]:
        pipeline, step = tripping("raise")
        with pipeline.iterate(step - (what == good), step + (what == bad), workers=1) as batches:
            return [int(batch["id"][0]) for batch in batches]

    @flow(persist_result=False)
    def reads() -> list[str]:
        states = [read.submit(what, return_state=True) for what in (good, bad)]
        for state in states:
            if not state.is_completed():
                with pytest.raises(PipelineError, match="no such pixel") as caught:
                    state.result()
                assert caught.value.facts["example"] == BAD
        return [state.type.value for state in states]

    assert reads() == ["COMPLETED", "FAILED"]
    assert multiprocessing.active_children() == before
