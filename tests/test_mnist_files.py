from __future__ import annotations

import json
from pathlib import Path

import pytest
from digit_files import write_digits

from tasks.peers.mnist_files import load, missing, tell


def test_the_raw_files_are_read(tmp_path: Path) -> None:
    train_x, train_y, test_x, test_y = load(str(write_digits(tmp_path)))
    assert (train_x.shape, train_y.shape, test_x.shape, test_y.shape) == ((160, 28, 28), (160,), (80, 28, 28), (80,))
    assert train_x[13, 9].tolist() == [250] * 28
    assert test_y[:12].tolist() == [*range(10), 0, 1]


def test_what_is_told_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    tell(50, 0.5)
    missing(ImportError("no torch"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"step": 50, "accuracy": 0.5}, {"missing": "no torch"}]
