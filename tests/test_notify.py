"""Notices: a real server tells a webhook of a run that failed, one that was killed, and a model that was refused."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import toy
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.deployments.runner import RunnerDeployment

from datasets.errors import ParameterError
from flows.train import train
from tasks.backlog import settle_abandoned_runs
from tasks.notify import FAILURE, REFUSAL, VARIABLE, addresses, mark_stage, say_refused, tell_of_failures

SECONDS = 120


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/hook", "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "mailtos://me:secret@example.org?to=a@b.org", "json://127.0.0.1:1/hook",
    ],
)  # fmt: skip
def test_addresses_that_can_be_sent_to(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(VARIABLE, f" {address}  {address}")
    assert addresses() == [address, address]


@pytest.mark.parametrize(
    "address", ["example.org/hook", "secret://me:hunter2@x", "https://", "https://hooks.slack.com/x"]
)
def test_others_are_refused_without_their_secret(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(VARIABLE, address)
    with pytest.raises(ParameterError, match="notices can't be sent") as caught:
        addresses()
    assert "hunter2" not in str(caught.value)


def test_nobody_is_told_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert addresses() == []


def test_outside_of_a_deployment_nothing_is_marked_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **options: pytest.fail("asked the server"))
    monkeypatch.setattr("prefect.events.emit_event", lambda *given, **more: pytest.fail("told the server"))
    mark_stage("fit")
    say_refused("x", "v1", "not better")


@pytest.mark.parametrize(("subject", "body"), [FAILURE, REFUSAL])
def test_every_message_says_dataset_stage_error_and_what_to_run(subject: str, body: str) -> None:
    assert "flow_run.parameters.dataset" in subject
    assert [line.partition(":")[0] for line in body.splitlines() if not line.startswith(" ")] == [
        "dataset", "stage", "error", "what to run", "run",
    ]  # fmt: skip


class Hook:
    """A webhook on this machine, and what it got."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, str]] = queue.Queue()
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> dict[str, str]:
        return self.got.get(timeout=SECONDS)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    made = Hook()
    monkeypatch.setenv(VARIABLE, made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen"
        time.sleep(0.2)


def execute(run: Any) -> subprocess.Popen[str]:
    """The process of a flow run, as a runner starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "prefect.engine"], cwd=toy.ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env={**os.environ, "PREFECT__FLOW_RUN_ID": str(run.id)},
    )  # fmt: skip


def trigger(client: SyncPrefectClient, store: Path, **parameters: Any) -> Any:
    deployment = cast(RunnerDeployment, train.to_deployment(name="mnist", parameters={"dataset": "mnist"}))
    given = {"dataset": "mnist", "model": "mlp", "store": str(store), **parameters}
    return client.create_flow_run_from_deployment(cast(Any, deployment.apply()), parameters=given)


def test_a_run_that_failed_was_killed_or_refused_tells_a_webhook(
    prefect_server: str, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_of_failures()
    tell_of_failures()  # after a restart: told once all the same
    with get_client(sync_client=True) as client:
        failing = trigger(client, tmp_path / "store", warm_start=str(tmp_path / "nowhere"))
        out, _ = execute(failing).communicate(timeout=SECONDS)
        told = hook.next()
        assert told["subject"] == "train/mnist: Failed", out
        assert "stage: none had begun to work" in told["body"]
        assert "nowhere" in told["body"]
        assert f"what to run: prefect flow-run retry {failing.id}" in told["body"]

        killed = trigger(client, tmp_path / "store", epochs=200)
        process = execute(killed)
        wait_for(lambda: client.read_flow_run(killed.id).labels.get("gristmill.stage") == "fit")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        settle_abandoned_runs()
        told = hook.next()
        assert told["subject"] == "train/mnist: Crashed"
        assert "stage: fit" in told["body"]
        assert "no process behind it" in told["body"]

        monkeypatch.setattr("tasks.notify._deployed_run", lambda: killed)  # as inside of it
        say_refused(str(killed.id), "v3", "not better than the champion beyond chance")
        told = hook.next()
        assert told["subject"] == "train/mnist: the new model was refused"
        assert "v3 stays the champion: not better than the champion beyond chance" in told["body"]
        assert "python -m flows.promote mnist" in told["body"]
    assert hook.got.empty()
