"""What `python -m flows.serve` keeps alive: the server and, as another child, the process that runs deployments.

How a flow becomes a deployment: give its options a function here, and flows/serve.py a line that hands them to
`flow.to_deployment`. Its name goes into `tasks.backlog.FLOWS`, so that a run of it that died is settled, and into
prefect.yaml for work pools.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlparse

import datasets
from datasets.errors import GristmillError
from datasets.nightly import Nightly
from tasks.backlog import MODELS, STORE
from tasks.lock import Lock
from tasks.progress import LOG
from tasks.server import FINAL, answers, spawn, stop, wait_until_healthy

SECONDS_TO_STOP_RUNS = 45


def keep() -> int:
    """Starts what is missing, waits for a signal, ends what it started.

    Returns:
        0 after a signal, 1 when the server or the deployments ended by themselves.
    """
    stopping: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    server = deployments = None
    lock = Lock(Path(os.environ["PREFECT_HOME"]) / "serve.lock")
    lock.path.parent.mkdir(parents=True, exist_ok=True)
    if not lock.acquire(blocking=False):
        print(f"error: process {lock.holder()} serves this checkout already", file=sys.stderr)
        return 1
    try:
        api = os.environ["PREFECT_API_URL"].rstrip("/")
        server = None if answers(api) else _start_server(api)
        if server is not None:
            wait_until_healthy(server, api, unless=lambda: bool(stopping))
        if not stopping:
            deployments = spawn([sys.executable, "-m", "flows.serve", "--deployments"], dict(os.environ))
        while not stopping:
            for name, process in (("the Prefect server", server), ("the deployments", deployments)):
                if process is not None and process.poll() is not None:
                    print(f"error: {name} ended with status {process.returncode}", file=sys.stderr)
                    return 1
            time.sleep(0.2)
    except GristmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    finally:
        if deployments is not None:
            stop(deployments, SECONDS_TO_STOP_RUNS)
        if server is not None:
            stop(server)
        lock.release()
    return 0


def _start_server(api: str) -> subprocess.Popen[bytes]:
    address = urlparse(api)
    print(f"starting a Prefect server at {address.scheme}://{address.netloc}", flush=True)
    command = [sys.executable, "-m", "tasks.embedded", str(address.port), str(address.hostname)]
    return spawn(command, {**os.environ, FINAL: "1"}, quiet=True)


def deployment_options() -> Iterator[dict[str, Any]]:
    """Options of `Flow.to_deployment` for each dataset file; a file that can't be loaded is reported and left out."""
    from prefect.types.entrypoint import EntrypointType

    for name in datasets.names():
        try:
            dataset = datasets.load(name)
        except Exception:
            LOG.exception("datasets/%s.py can't be loaded, so train/%s is not served", name, name)
            continue
        if dataset.nightly is not None:
            LOG.info("train/%s is scheduled at %s, %s", name, dataset.nightly.cron, dataset.nightly.timezone)
        yield {
            "name": name,
            "description": dataset.about,
            "schedule": schedule_of(dataset.nightly),
            "parameters": {"dataset": name},
            "tags": [name],
            "entrypoint_type": EntrypointType.MODULE_PATH,
            "concurrency_limit": _one_at_a_time(),  # a second trigger waits for the first
        }


def clean_options() -> dict[str, Any]:
    """Options of the deployment that keeps the store small, by the clock of `clean` in prefect.toml.

    Raises:
        ParameterError: That isn't five fields of a cron line, with a time zone behind them or not.
    """
    from prefect.types.entrypoint import EntrypointType

    fields = os.environ.get("GRISTMILL_CLEAN", "").split()
    when = Nightly(" ".join(fields[:5]), *fields[5:6]) if fields else None
    return {
        "name": STORE,
        "description": "Removes from the store what no champion, recent run or running process needs",
        "schedule": schedule_of(when),
        "entrypoint_type": EntrypointType.MODULE_PATH,
        "concurrency_limit": _one_at_a_time(),
    }


def promote_options() -> dict[str, Any]:
    """Options of the deployment that changes a champion or a name by hand; the dataset is a parameter."""
    from prefect.types.entrypoint import EntrypointType

    return {
        "name": MODELS,
        "description": "Another champion, a rollback, or another name for a version of a dataset's models",
        "entrypoint_type": EntrypointType.MODULE_PATH,
        "concurrency_limit": _one_at_a_time(),
    }


def _one_at_a_time() -> Any:  # noqa: ANN401
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy

    return ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)


def schedule_of(nightly: Nightly | None) -> Any:  # noqa: ANN401 - Prefect's Schedule or None
    """A dataset file's schedule as Prefect's."""
    from prefect.schedules import Cron

    return None if nightly is None else Cron(nightly.cron, timezone=nightly.timezone)
