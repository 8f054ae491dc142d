"""The real command in several processes: one killed and gone on with by another number, stopped, a run a host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flow_process import digests, finish, start, states

pytestmark = pytest.mark.slow  # each start of the command costs many seconds of processor time
RECIPE = ("--epochs=2", "--batch-size=64", "--checkpoint-every=20")


def members(run: subprocess.Popen[str]) -> list[int]:
    """Process ids of the processes that a run started for its training, in their order."""
    found = subprocess.run(["pgrep", "-P", str(run.pid), "-f", "tasks.one_process"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def progress(store: Path) -> int:
    steps = [int(path.name) for path in store.glob("checkpoints/mnist/*/*") if path.name.isdigit()]
    return max(steps, default=0)


def wait_for(condition: Callable[[], Any], run: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("victim", [0, 1])
def test_one_killed_ends_the_run_and_one_process_goes_on(prefect_server: str, tmp_path: Path, victim: int) -> None:
    run = start(tmp_path, *RECIPE, "--processes=2")
    wait_for(lambda: progress(tmp_path) >= 20, run)
    both = members(run)
    os.kill(both[victim], signal.SIGKILL)
    killed = time.monotonic()
    _, err = run.communicate(timeout=120)
    print(f"process {victim} killed: the run had ended {time.monotonic() - killed:.1f} s later")
    assert run.returncode == 1
    assert "a process of the training died" in err
    assert f"process: {victim}" in err
    assert all(gone(pid) for pid in both)
    summary = finish(start(tmp_path, *RECIPE))
    assert states(summary)["fit"] == "resumed"
    assert summary["resumed_from"] >= 20
    assert summary["meshes"] == [[0, 2, 1], [summary["resumed_from"], 1, 1]]


def test_stopped_in_order_and_gone_on_to_the_same_bits(prefect_server: str, tmp_path: Path) -> None:
    whole = finish(start(tmp_path / "whole", *RECIPE, "--processes=2"))
    assert states(whole)["fit"] == "ran"
    run = start(tmp_path / "stopped", *RECIPE, "--checkpoint-every=100000", "--processes=2")
    wait_for(lambda: any((tmp_path / "stopped").glob("checkpoints/mnist/*/metrics.jsonl")), run)
    time.sleep(2)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=120)
    saved = progress(tmp_path / "stopped")
    assert saved > 0
    again = finish(start(tmp_path / "stopped", *RECIPE, "--processes=2"))
    assert again["resumed_from"] == saved
    assert digests(again) == digests(whole)


def test_a_run_a_host_over_one_store(prefect_server: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    runs = [
        start(tmp_path, *RECIPE, "--processes=2", f"--process={host}", f"--coordinator={meet}") for host in (0, 1)
    ]  # fmt: skip
    summaries = [finish(run) for run in runs]
    assert digests(summaries[0]) == digests(summaries[1])
    assert [states(summary)["fit"] for summary in summaries] == ["ran", "ran"]
    assert states(finish(start(tmp_path, *RECIPE, "--processes=2")))["fit"] == "cached"
