"""The benchmark of overhead works with one round; its figures are no test's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.errors import StoreError
from tasks.benchmarks import overhead


@pytest.mark.slow
def test_ours_and_theirs_are_measured_on_cached_runs(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "ROUNDS", 2)
    request = {**overhead.REQUEST, "store": str(tmp_path / "store")}
    ours, theirs = overhead._flows(request, tmp_path / "results")
    assert len(ours) == len(theirs) == 2
    assert min(*ours, *theirs) > 0
    assert len(list((tmp_path / "results").iterdir())) == 7  # each idle task was kept once


def test_a_run_that_did_something_is_refused() -> None:
    overhead._check_cached({"stages": [{"name": "fit", "state": "cached"}]})
    with pytest.raises(StoreError, match="ran") as caught:
        overhead._check_cached({"stages": [{"name": "fit", "state": "ran"}, {"name": "feed", "state": "cached"}]})
    assert caught.value.facts["got"] == ["fit"]


def test_a_start_and_an_import_take_time() -> None:
    assert overhead._import("json") > 0
