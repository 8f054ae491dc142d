"""The Prefect server that a command talks to: the one at the configured address if it answers, else one of its own.

An own server is a child process on a free port of 127.0.0.1. It shares the database with `make serve`, so the history
is one, and the kernel ends it when this process dies, `kill -9` included: no orphan is left behind. Nearly all of its
start is imports, as is ours, so a command starts it first and both import side by side.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from datasets.errors import ServeError
from tasks.request import CHECKOUT

PR_SET_PDEATHSIG = 1
SECONDS_TO_START = 180
SECONDS_TO_STOP = 20
FINAL = "PREFECT__SERVER_FINAL"  # of a process that is nothing but a server
NO_RESULTS = CHECKOUT / ".prefect" / "storage"
"""Where Prefect would keep the results of our flows, which have none to keep: if it is told, it needn't ask the server
twice a run."""
_ahead: list[tuple[subprocess.Popen[bytes], str]] = []


def configure() -> None:
    """Puts the settings of `prefect.toml`, ours in `[gristmill]` among them, where nothing else is set.

    Must be called before Prefect is imported. The database and the profile are the checkout's own (`.prefect/`), so
    that another Prefect version on the same account is never migrated by ours.
    """
    settings = _settings()
    ours = settings.pop("gristmill", {})
    for name, value in (*_flat("PREFECT", settings), *_flat("GRISTMILL", ours)):
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(CHECKOUT / ".prefect"))
    if database := os.environ.get("GRISTMILL_DATABASE"):
        os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = with_driver(database)
    os.environ.setdefault("DO_NOT_TRACK", "1")  # the second of Prefect's two opt-outs exists only here
    for name in ("no_proxy", "NO_PROXY"):  # a proxy can't reach the servers of this machine
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    logging.getLogger("gristmill").setLevel(logging.INFO)


def with_driver(database: str) -> str:
    """The address of a PostgreSQL database as Prefect wants it, with the driver that comes with Prefect."""
    scheme, separator, rest = database.partition("://")
    return f"postgresql+asyncpg://{rest}" if separator and scheme in ("postgres", "postgresql") else database


def _settings() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "prefect.toml").read_text(encoding="utf-8"))


def _flat(prefix: str, settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        key = f"{prefix}_{name.upper()}"
        if isinstance(value, dict):
            yield from _flat(key, value)
        else:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


def answers(api: str) -> bool:
    """Whether a healthy Prefect server is at an address such as http://127.0.0.1:4200/api."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=2) as response:  # noqa: S310 - our own setting
            return response.status == 200 and response.read().strip() == b"true"
    except (OSError, ValueError, http.client.HTTPException):
        return False


def start_ahead(module: str) -> None:
    """Starts the server that a command will need, if none answers, while this process still imports Prefect.

    A request that is refused ends this process, and the kernel tells the server to end.

    Args:
        module: `__name__` of the caller; nothing is started when it is only imported.
    """
    if module == "__main__" and not {"-h", "--help"} & set(sys.argv) and _is_default(api := _api()):
        _ahead.extend([] if answers(api) else [start_embedded()])


def _api() -> str:
    return os.environ["PREFECT_API_URL"].rstrip("/")


def _is_default(api: str) -> bool:
    return api == dict(_flat("PREFECT", _settings()))["PREFECT_API_URL"]


@contextlib.contextmanager
def connected() -> Iterator[str]:
    """The address of a server that answers; Prefect talks to it while the context is open.

    Raises:
        ServeError: None answers and an own one can't be started, or the user set an address at which nothing answers.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    configure()
    api = _api()
    if answers(api):
        while _ahead:
            stop(_ahead.pop()[0])
        with temporary_settings({PREFECT_API_URL: api}):
            yield api
        return
    if not _is_default(api):
        raise ServeError(
            "no Prefect server answers at PREFECT_API_URL", got=api, cure="start it, or unset PREFECT_API_URL"
        )
    with embedded() as api:
        yield api


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    """The address of a server of our own, which ends with the context; Prefect talks to it while the context is open.

    Raises:
        ServeError: It can't be started.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    process, api = _ahead.pop() if _ahead else start_embedded()
    try:
        wait_until_healthy(process, api)
        # Heartbeats are for automations, which such a server doesn't run; to stop them takes Prefect up to a second
        with temporary_settings({PREFECT_API_URL: api, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            try:
                yield api
            finally:  # the last log lines and states, before the server that takes them is gone
                APILogHandler().flush()
                EventsWorker.drain_all(timeout=SECONDS_TO_STOP)
    finally:
        stop(process)


def start_embedded() -> tuple[subprocess.Popen[bytes], str]:
    """Starts a server without UI on a free port; `wait_until_healthy` says when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",  # only the services that a run's own server needs
        FINAL: "1",
    }
    command = [sys.executable, "-m", "tasks.embedded", str(port)]
    return spawn(command, environment, quiet=True), f"http://127.0.0.1:{port}/api"


def spawn(command: list[str], environment: dict[str, str], *, quiet: bool = False) -> subprocess.Popen[bytes]:
    """Starts a child that gets no Ctrl-C of our terminal and that the kernel ends when we die."""
    return subprocess.Popen(  # noqa: S603 - our own command
        command, env=environment, preexec_fn=_tie_to_parent, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else None, cwd=CHECKOUT,
    )  # fmt: skip


def _tie_to_parent() -> None:
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_until_healthy(
    process: subprocess.Popen[bytes], api: str, unless: Callable[[], object] = lambda: False
) -> None:
    """Waits for a server to answer, or for `unless` to be true.

    Raises:
        ServeError: It ended, or didn't answer within SECONDS_TO_START.
    """
    deadline = time.monotonic() + SECONDS_TO_START
    while not answers(api) and not unless():
        if process.poll() is not None:
            raise ServeError(
                "the Prefect server ended at its start", address=api, got=f"exit status {process.returncode}",
                cure="its messages are above; is the port taken by something else?",
            )  # fmt: skip
        if time.monotonic() > deadline:
            raise ServeError("the Prefect server doesn't answer", address=api, expected=f"within {SECONDS_TO_START} s")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], seconds: float = SECONDS_TO_STOP) -> None:
    """Ends a child: politely first, for certain after `seconds`."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
