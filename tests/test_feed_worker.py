"""Faults of whole workers: see test_pipeline.py and test_batches.py."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from test_batches import TOKEN, shared

from tasks import feed_worker as module


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_whose_parent_is_gone_makes_no_more_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(module.os, "_exit", ended.append)
    monkeypatch.setattr(module.shared_memory, "_make_filename", module.shared_memory._make_filename)  # type: ignore[attr-defined]
    left = Path(f"/dev/shm/gristmill-{TOKEN}-left")
    left.write_bytes(b"x" * 128)
    if fails:
        monkeypatch.setattr(module.resource_tracker, "register", lambda *_: 1 / 0)
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    try:
        module._end_with(ours, f"gristmill-{TOKEN}-")  # type: ignore[arg-type]
    except ZeroDivisionError:
        assert fails
        left.unlink()
    assert ended == [1]
    assert shared() == []
    assert module.shared_memory._make_filename.__self__.is_set() is False  # type: ignore[attr-defined]
