"""The other interpreter of the feed's benchmark: its protocol, with pipelines that need no other library."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.peers import loaders

SCRIPT = Path(loaders.__file__)


def asked(folder: Path, *names: str) -> list[dict[str, Any]]:
    lines = "".join(json.dumps({"peer": name, "seconds": 0.0}) + "\n" for name in names)
    made = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), str(folder), "4"], input=lines, capture_output=True, text=True, cwd=folder,
        timeout=120, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in made.stdout.splitlines()]


@pytest.mark.parametrize("peer", ["torch_batched", "hugging_face"])
def test_a_library_that_is_not_there_is_said_to_be_missing(tmp_path: Path, peer: str) -> None:
    np.save(tmp_path / "label.npy", np.arange(9))
    np.save(tmp_path / "inputs.npy", np.zeros((9, 2), np.uint8))
    (answer, again) = asked(tmp_path, peer, peer)
    if "rate" not in answer:
        assert answer["missing"].startswith("No module named")
        assert again == answer


def test_a_rate_counts_examples_and_leaves_out_what_lay_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, taken = iter(np.arange(0, 1000, 0.25)), []

    def stream(folder: Path, batch: int) -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    monkeypatch.setattr(loaders.time, "perf_counter", lambda: float(next(clock)))
    assert loaders.rate(stream(tmp_path, 8), 8, 2.0) == pytest.approx(7 * 8 / 2.25)
    assert len(taken) == 2 + 7


def test_a_stream_goes_on_from_request_to_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def stream(folder: Path, batch: int) -> Iterator[int]:
        opened.append(folder.name)
        yield from iter(int, 1)  # never ends

    monkeypatch.setitem(loaders.PEERS, "mine", stream)
    requests = (json.dumps({"peer": "mine", "seconds": 0.001}) + "\n") * 3
    monkeypatch.setattr(sys, "stdin", io.StringIO(requests))
    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdout", answers)
    loaders.serve(tmp_path, 8)
    assert [json.loads(line)["rate"] > 0 for line in answers.getvalue().splitlines()] == [True] * 3
    assert opened == [tmp_path.name]
