"""What a run costs in which nothing has to be done: against Prefect alone, and from the command line.

The limit is a flow of as many cached tasks that do nothing, on the same server, one after the other with ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from datasets.errors import StoreError
from tasks.benchmark import Measure, in_turns, paired
from tasks.request import CHECKOUT
from tasks.server import embedded, start_embedded, stop, wait_until_healthy

ROUNDS = 15
COMMANDS = 3
SETTLE = 1.5  # seconds
REQUEST = {"dataset": "mnist", "model": "mlp", "epochs": 1}
TRAIN = "flows.train.train"


def run() -> list[Measure]:
    """Wall seconds of cached runs, in a store and a Prefect database of their own."""
    with tempfile.TemporaryDirectory(prefix="gristmill-overhead-") as folder, at_home(Path(folder)):
        request = {**REQUEST, "store": f"{folder}/store"}
        starts = [_seconds_to_start() for _ in range(COMMANDS + 1)][1:]  # the first makes the database
        with embedded() as api:
            ours, theirs = _flows(request, Path(folder, "results"))
            with_server = [cached_command(request, {"PREFECT_API_URL": api}) for _ in range(COMMANDS)]
        alone = [cached_command(request, {}) for _ in range(COMMANDS)]
    cached, against = "a run whose stages are all cached", "as many cached no-op tasks in Prefect"
    return [
        paired(cached, "s", ours, theirs, against=against, goal="<= 1.3"),
        paired("the same as a command, a server is running", "s", with_server),
        paired("the same as a command, its own server started first", "s", alone),
        paired("start of such a server until it answers", "s", starts),
        paired("import of Prefect", "s", [_import("prefect") for _ in range(COMMANDS)]),
        paired("import of the flow, Prefect in it", "s", [_import("flows.train") for _ in range(COMMANDS)]),
    ]


@contextlib.contextmanager
def at_home(folder: Path) -> Iterator[None]:
    """While open, Prefect's files are below this folder."""
    before = os.environ["PREFECT_HOME"]
    os.environ["PREFECT_HOME"] = str(folder / "home")
    try:
        yield
    finally:
        os.environ["PREFECT_HOME"] = before


def _flows(request: dict[str, Any], results: Path) -> tuple[list[float], list[float]]:
    """Seconds of each round, of our flow and of one that does nothing."""
    from prefect.flows import load_flow_from_entrypoint  # as a deployment finds it: what is here imports no flow

    first_run(request)  # in a process of its own: in this one, as in any whose stages are all cached, no JAX is loaded
    train = load_flow_from_entrypoint(TRAIN, use_placeholder_flow=False)
    summary = train(**request)
    _check_cached(summary)
    idle = _idle_flow(results, [stage["name"] for stage in summary["stages"]])
    idle()
    return in_turns(lambda: _seconds(lambda: train(**request)), lambda: _seconds(idle), ROUNDS)


def _idle_flow(results: Path, names: list[str]) -> Callable[[], object]:
    from prefect import flow, task

    results.mkdir()
    tasks = [
        task(
            name=name, cache_key_fn=lambda context, given, name=name: f"idle-{name}", persist_result=True,
            result_storage=results, result_serializer="json", cache_result_in_memory=False,
        )(_nothing)
        for name in names
    ]  # fmt: skip

    @flow(name="idle", persist_result=False)
    def idle() -> None:
        for one in tasks:
            one()

    return idle


def _nothing() -> dict[str, str]:
    return {}


def _seconds(work: Callable[[], object]) -> float:
    # The server still writes down the events of the run before: a cost of runs that follow within the same second, not
    # of what is measured here.
    time.sleep(SETTLE)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _seconds_to_start() -> float:
    started = time.perf_counter()
    process, api = start_embedded()
    try:
        wait_until_healthy(process, api)
        return time.perf_counter() - started
    finally:
        stop(process)


def cached_command(request: dict[str, Any], environment: dict[str, str]) -> float:
    """Seconds of `python -m flows.train`, all of whose stages are cached.

    Raises:
        StoreError: One wasn't.
    """
    started = time.perf_counter()
    summary = _trained(request, environment)
    seconds = time.perf_counter() - started
    _check_cached(summary)
    return seconds


def first_run(request: dict[str, Any]) -> None:
    """Makes all that the runs after it find."""
    _trained(request, {})


def _trained(request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The summary of `python -m flows.train`."""
    options = [f"--{name}={value}" for name, value in request.items() if name != "dataset"]
    command = [sys.executable, "-m", "flows.train", request["dataset"], *options, "--json"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, env={**os.environ, **environment}, cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _check_cached(summary: dict[str, Any]) -> None:
    if busy := [stage["name"] for stage in summary["stages"] if stage["state"] != "cached"]:
        raise StoreError("a stage that should come from the cache ran, so this would be no overhead", got=busy)


def _import(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    return float(done.stdout)
