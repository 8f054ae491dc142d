"""`python -m flows.serve` in a checkout, with a server and a history of its own, and what a person does with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateName,
)
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Scheduled

from tasks.server import answers

SECONDS = 240.0


def wait_for(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """What the condition gives once it is true.

    Raises:
        AssertionError: It never was.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)
    return result


class Service:
    """A server that lives as long as this object, and deployments that can be killed and started again.

    Args:
        root: A checkout.
        folder: For the history and the logs.
    """

    def __init__(self, root: Path, folder: Path, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.root, self.log, self.api = root, folder / "log", f"http://127.0.0.1:{port}/api"
        self.environment = {
            **clean, "PREFECT_HOME": str(folder / "home"), "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_API_URL": self.api, "GRISTMILL_STORE": str(root / "store"), **environment,
        }  # fmt: skip
        self.server = self._start("prefect", "server", "start", "--port", str(port))
        self.deployments: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        wait_for(lambda: answers(self.api), "the server")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.deployments, self.server):
            if process is not None:
                self.end(process)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=self.root, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        """Sends a signal to one process and waits for its end; what it started has to end by itself."""
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def serve(self) -> None:
        """Starts the deployments and waits until they are there."""
        self.deployments = self._start("flows.serve", "--deployments")
        before = len(self.log.read_bytes())

        def ready() -> bool:
            assert self.deployments is not None
            assert self.deployments.poll() is None, self.log.read_text()[-4000:]
            return b"being served" in self.log.read_bytes()[before:]

        wait_for(ready, "the deployments")

    @contextmanager
    def client(self) -> Iterator[SyncPrefectClient]:
        """A client of the server."""
        with temporary_settings({PREFECT_API_URL: self.api}), get_client(sync_client=True) as client:
            yield client

    def trigger(self, dataset: str, tags: tuple[str, ...] = (), **parameters: Any) -> UUID:
        """As `prefect deployment run train/<dataset> -p ...`."""
        with self.client() as client:
            deployment = client.read_deployment_by_name(f"train/{dataset}")
            given = {**deployment.parameters, **parameters}
            return client.create_flow_run_from_deployment(deployment.id, parameters=given, tags=tags).id

    def retry(self, run: UUID) -> None:
        """As the button Retry in the UI."""
        with self.client() as client:
            client.set_flow_run_state(run, Scheduled(name="AwaitingRetry"), force=True)

    def state(self, run: UUID) -> State[Any]:
        with self.client() as client:
            state = client.read_flow_run(run).state
        assert state is not None
        return state

    def wait(self, run: UUID, *names: str, seconds: float = SECONDS) -> State[Any]:
        """The run's state, once it is one of these; any final one if none is named."""
        with self.client() as client:

            def reached() -> State[Any] | None:
                state = client.read_flow_run(run).state
                assert state is not None
                assert not names or state.name in names or not state.is_final(), f"{state!r}\n{self.tail()}"
                return state if (state.name in names if names else state.is_final()) else None

            return wait_for(reached, f"run {run} in {names or 'any final state'}", seconds)

    def stages(self, run: UUID) -> dict[str, str]:
        """Name of the last state of each stage of a run: Completed, Cached, Failed ...

        A run's stages are told to the server a little later than its own state, so this waits until they settle.
        """
        with self.client() as client:
            this = FlowRunFilter(id=FlowRunFilterId(any_=[run]))

            def read() -> dict[str, str]:
                found = client.read_task_runs(flow_run_filter=this)
                tasks = sorted(found, key=lambda task: str(task.created))  # of a retry there are two each
                return {task.name.split()[0]: task.state_name or "" for task in tasks}

            before: dict[str, str] = {}
            deadline = time.monotonic() + 30
            while (found := read()) != before or not found or {"Running", "Pending"} & set(found.values()):
                if time.monotonic() > deadline:
                    break
                before = found
                time.sleep(1)
            return found

    def unfinished(self) -> list[str]:
        """Names of the states of runs that a process should be working on."""
        with self.client() as client:
            states = [run.state_name or "" for run in client.read_flow_runs()]
        return [name for name in states if name in ("Running", "Pending", "Cancelling")]

    def stages_left(self, seconds: float = 30.0) -> list[str]:
        """Names of stages that are shown as running though no run is; looked for until there are none."""
        running = TaskRunFilter(state=TaskRunFilterState(name=TaskRunFilterStateName(any_=["Running", "Pending"])))
        deadline = time.monotonic() + seconds
        with self.client() as client:
            while (left := client.read_task_runs(task_run_filter=running)) and time.monotonic() < deadline:
                time.sleep(1)
        return [f"{task.name} {task.state_name}" for task in left]

    def process_of(self, run: UUID) -> int | None:
        """Process id of the run's own process."""
        mark = f"PREFECT__FLOW_RUN_ID={run}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    return int(path.parent.name)
        return None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]
