from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import toy
from digit_files import write_digits

SCRIPT = toy.ROOT / "tasks" / "peers" / "jax_mnist.py"


@pytest.mark.slow
def test_the_tutorial_learns_and_tells(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(SCRIPT), str(write_digits(tmp_path)), "10", "16"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=240)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["step"] for row in said] == [10, 20, 30, 40, 50, 60], done.stderr[-2000:]
    assert said[-1]["accuracy"] > 0.9
