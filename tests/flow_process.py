"""The real command in processes of its own, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def start(store: Path, *options: str, seen: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """`python -m flows.train mnist` with a small model, in its own process group.

    Args:
        store: Of the run.
        options: Of the command.
        seen: File that gets a line for each batch that is trained on; see `doomed.py`.
        environment: More variables.
    """
    module = ["flows.train"] if seen is None else ["tests.doomed", "-", str(seen)]
    command = [sys.executable, "-m", *module, *options_of(store, *options)]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def options_of(store: Path, *options: str) -> list[str]:
    """What follows the module: of a run with a small model."""
    return ["mnist", "--model=mlp", "--json", f"--store={store}", *options]


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The summary that the command printed.

    Raises:
        AssertionError: It failed; with what it said.
    """
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"exit status {process.returncode}\n{out[-2000:]}\n{err[-6000:]}"
    return json.loads(out.strip().splitlines()[-1])


def kill_after(process: subprocess.Popen[str], seconds: float) -> bool:
    """SIGKILL to the command's process alone, as the kernel's out-of-memory killer does; False if it was faster."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    return kill(process)


def kill(process: subprocess.Popen[str]) -> bool:
    """SIGKILL now; False if the process had ended."""
    alive = process.poll() is None
    if alive:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return alive


def digests(summary: dict[str, Any]) -> dict[str, str]:
    """Digest of each stage's artifact; the input plan holds measurements, so it isn't one of them."""
    return {stage["name"]: stage["digest"] for stage in summary["stages"] if stage["name"] != "feed"}


def states(summary: dict[str, Any]) -> dict[str, str]:
    """State of each stage."""
    return {stage["name"]: stage["state"] for stage in summary["stages"]}
