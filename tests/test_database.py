"""Twenty runs at the same time, on SQLite and on a real PostgreSQL: each is recorded in full."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from test_serve import free_port

from tasks.server import FINAL, spawn, stop, wait_until_healthy, with_driver

RUNS, TASKS = 20, 7
CODE = f"""
import concurrent.futures, time
from tasks.server import configure
configure()
from prefect import flow, task
from prefect.client.orchestration import get_client

@task(persist_result=False)
def nothing(at): return at

@flow(persist_result=False)
def small(number):
    return sum(nothing(at) for at in range({TASKS}))

started = time.perf_counter()
with concurrent.futures.ThreadPoolExecutor({RUNS}) as pool:
    assert list(pool.map(small, range({RUNS}))) == [{sum(range(TASKS))}] * {RUNS}
print("seconds", round(time.perf_counter() - started, 2))
with get_client(sync_client=True) as client:
    runs = client.read_flow_runs()
    for _ in range(100):  # the last events are on their way
        tasks = client.read_task_runs()
        if len(tasks) == {RUNS * TASKS} and all(one.state and one.state.is_completed() for one in tasks):
            break
        time.sleep(0.3)
print(sorted({{run.state.name for run in runs}}), len(runs), len(tasks))
"""


def postgres_tools() -> Path | None:
    found = shutil.which("initdb")
    folder = Path(found).resolve().parent if found else None
    return folder if folder and (folder / "pg_ctl").exists() else None


@pytest.fixture
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server of our own; it refuses to run as root, so it is another user's then."""
    tools = postgres_tools()
    if tools is None:
        pytest.skip("PostgreSQL isn't installed")
    user: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="gristmill-pg-") as folder:
        if user:
            shutil.chown(folder, "nobody", "nogroup")
        data, port = Path(folder, "data"), free_port()

        def call(*command: str) -> None:
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=120, **user)

        call(str(tools / "initdb"), "-D", str(data), "-U", "me", "--auth=trust", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        call(str(tools / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(Path(folder, "log")), "-w", "start")
        try:
            yield f"postgresql://me@127.0.0.1:{port}/postgres"
        finally:
            call(str(tools / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")


@contextlib.contextmanager
def server(home: Path, database: str) -> Iterator[dict[str, str]]:
    """The environment of a client of a server with this database."""
    port = free_port()
    api = f"http://127.0.0.1:{port}/api"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**clean, "PREFECT_HOME": str(home), "PREFECT_API_URL": api, "PREFECT_SERVER_ANALYTICS_ENABLED": "0"}
    if database:
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = with_driver(database)
    process = spawn([sys.executable, "-m", "tasks.embedded", str(port)], {**environment, FINAL: "1"}, quiet=True)
    try:
        wait_until_healthy(process, api)
        yield environment
    finally:
        stop(process)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_twenty_runs_at_the_same_time_are_recorded_in_full(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres") if kind == "postgres" else ""
    with server(tmp_path / "home", database) as environment:
        done = subprocess.run(
            [sys.executable, "-c", CODE], cwd=toy.ROOT, env=environment, text=True, capture_output=True, timeout=400
        )
    assert done.returncode == 0, done.stderr[-4000:]
    seconds, states = done.stdout.strip().splitlines()[-2:]
    print(f"{kind}: {RUNS} runs of {TASKS} tasks side by side, {seconds}")
    assert states == f"['Completed'] {RUNS} {RUNS * TASKS}", done.stderr[-4000:]
    assert "Service Unavailable" not in done.stderr
    if database:
        assert not list((tmp_path / "home").glob("*.db"))
