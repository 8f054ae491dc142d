"""PyTorch is never in this environment, so its absence is what can be tested; with it, that the loop answers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import toy

SCRIPT = toy.ROOT / "tasks" / "peers" / "torch_fit.py"


def test_each_line_is_answered_with_seconds_or_what_is_missing(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", image=np.zeros((8, 28, 28, 1), np.uint8), label=np.zeros(8, np.int32))
    np.save(tmp_path / "ids.npy", np.arange(8).reshape(2, 4))
    arguments = ["mlp", str(tmp_path / "arrays.npz"), str(tmp_path / "ids.npy")]
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), *arguments],
        input="loop\nloop\n",
        text=True,
        capture_output=True,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 2, done.stderr
    there = importlib.util.find_spec("torch") is not None
    assert [set(answer) for answer in answers] == [{"seconds"} if there else {"missing"}] * 2
