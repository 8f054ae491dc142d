from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import toy
from digit_files import write_digits

SCRIPT = toy.ROOT / "tasks" / "peers" / "keras_mnist.py"


def test_it_says_that_its_library_is_missing_or_learns(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(SCRIPT), str(write_digits(tmp_path)), "10", "16"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=240)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if importlib.util.find_spec("keras") is None:
        assert said == [{"missing": "No module named 'keras'"}]
    else:
        assert [row["step"] for row in said] == [10, 20, 30, 40, 50, 60], done.stderr[-2000:]
