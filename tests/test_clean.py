"""`python -m flows.clean` as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def call(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.clean", "--json", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_last_line_is_json(tmp_path: Path) -> None:
    done = call("--dry-run", "--store", str(tmp_path / "store"), "--days", "7")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {"store": str(tmp_path / "store"), "dry_run": True, "bytes": 0, "removed": []}


def test_a_wrong_limit_is_refused(tmp_path: Path) -> None:
    done = call("--store", str(tmp_path), "--keep", "0")
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1])["error"] == "ParameterError"
