"""`python -m flows.serve` as a whole: a server, deployments, one process tree that a signal ends without remains."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import toy

import datasets
from tasks.backlog import MODELS, STORE
from tasks.server import answers

SECONDS = 180


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def deployments(api: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{api}/deployments/filter", data=b"{}", headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def processes_of(home: Path) -> dict[int, str]:
    """Every process that was given this PREFECT_HOME, its command line by its id; one that ended doesn't count."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and f"PREFECT_HOME={home}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    port = str(free_port())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **clean, "PREFECT_HOME": str(tmp_path / "home"), "PREFECT_SERVER_API_PORT": port,
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "GRISTMILL_STORE": str(tmp_path / "store"),
    }  # fmt: skip


def start(environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.serve"], cwd=toy.ROOT, env=environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip


@pytest.fixture
def serving(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(environment, tmp_path / "log")
    yield process
    for pid in processes_of(tmp_path / "home"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def test_a_wrong_setting_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flows import serve

    monkeypatch.setattr(serve, "keep", lambda: pytest.fail("started"))
    monkeypatch.setenv("GRISTMILL_NOTIFY", "nowhere")
    assert serve.main([]) == 2
    monkeypatch.setenv("GRISTMILL_NOTIFY", "")
    monkeypatch.setenv("GRISTMILL_CLEAN", "@nightly")
    assert serve.main([]) == 2


def test_it_serves_every_dataset_and_ends_without_remains(
    serving: subprocess.Popen[bytes], environment: dict[str, str], tmp_path: Path
) -> None:
    api, home, log = environment["PREFECT_API_URL"], tmp_path / "home", tmp_path / "log"
    deadline = time.monotonic() + SECONDS
    made: list[dict[str, Any]] = []
    chores = {STORE: "flows.clean.clean", MODELS: "flows.promote.promote"}
    expected = sorted([*datasets.names(), *datasets.names(), *chores])  # trainings and predictions have the same names
    while sorted(deployment["name"] for deployment in made) != expected:
        assert serving.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)
        made = deployments(api) if answers(api) else []
    for deployment in made:
        chore = chores.get(deployment["name"])
        assert deployment["parameters"] == ({} if chore else {"dataset": deployment["name"]})
        assert deployment["entrypoint"] in ({chore} if chore else {"flows.train.train", "flows.predict.predict"})
        assert not deployment["paused"]
        assert deployment["concurrency_options"] == {"collision_strategy": "ENQUEUE"} | {
            name: value for name, value in deployment["concurrency_options"].items() if name != "collision_strategy"
        }  # fmt: skip
        assert deployment["global_concurrency_limit"]["limit"] == 1
    assert len(processes_of(home)) >= 3  # this one, the server, the deployments

    second = start(environment, tmp_path / "second")
    assert second.wait(SECONDS) == 1
    assert f"process {serving.pid} serves this checkout already" in (tmp_path / "second").read_text()
    assert answers(api)

    serving.send_signal(signal.SIGTERM)
    assert serving.wait(SECONDS) == 0, log.read_text()
    left = processes_of(home)
    assert not left, (left, log.read_text())
    assert not answers(api)
    assert "Traceback" not in log.read_text()
