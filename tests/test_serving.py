from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.states import Pending, Running

import datasets
from datasets.errors import ServeError
from tasks import serving
from tasks.lock import Lock
from tasks.serving import FLOW, RECONCILED, deployment_options, keep, settle_abandoned_runs

# --------------------------------------------------------------------------------------------------------- deployments


def test_every_dataset_file_is_a_deployment() -> None:
    options = list(deployment_options())
    assert [option["name"] for option in options] == datasets.names()
    for option in options:
        assert option["parameters"] == {"dataset": option["name"]}
        assert option["description"] == datasets.load(option["name"]).about
        assert option["tags"] == [option["name"]]
        # a second trigger waits: two trainings never write the same checkpoints
        assert option["concurrency_limit"] == ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        )


def test_the_options_make_deployments_of_the_flow() -> None:
    from flows.train import train

    for option in deployment_options():
        made = cast(RunnerDeployment, train.to_deployment(**option))
        assert (made.flow_name, made.name, made.entrypoint) == (FLOW, option["name"], "flows.train.train")


@pytest.fixture
def other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of dataset files with mnist in it, in the place of the real one."""
    shutil.copy(datasets.FOLDER / "mnist.py", tmp_path / "mnist.py")
    monkeypatch.setattr(datasets, "FOLDER", tmp_path)
    monkeypatch.setattr(datasets, "__path__", [str(tmp_path), *datasets.__path__])
    return tmp_path


@pytest.mark.parametrize(
    "content", ["DATASET = 1 / 0", "import no_such_library\nDATASET = 1", "DATASET = ", "DATASET = 3"]
)
def test_a_broken_dataset_file_is_reported_and_hides_no_other(
    other_files: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (other_files / "aaa_broken.py").write_text(content)
    with caplog.at_level("ERROR", logger="gristmill"):
        assert [option["name"] for option in deployment_options()] == ["mnist"]
    (record,) = caplog.records
    assert "datasets/aaa_broken.py" in record.getMessage()
    assert "train/aaa_broken is not served" in record.getMessage()
    assert record.exc_info
    sys.modules.pop("datasets.aaa_broken", None)


def test_a_file_that_is_not_even_text_hides_no_other(other_files: Path) -> None:
    (other_files / "aaa_broken.py").write_bytes(b"DATASET = '\xff\xfe'")
    assert [option["name"] for option in deployment_options()] == ["mnist"]


# --------------------------------------------------------------------------------------------- runs that were abandoned


def deployment(client: SyncPrefectClient, flow: str, name: str) -> Any:
    return client.create_deployment(client.create_flow_from_name(flow), name=name)


def test_runs_that_a_crash_left_behind_are_settled(prefect_server: str) -> None:
    from flows.train import train

    with get_client(sync_client=True) as client:
        ours, others = deployment(client, FLOW, "mnist"), deployment(client, "somebody-elses", "mnist")
        foreign = deployment(client, FLOW, "of-another-project")
        made = {
            "running": client.create_flow_run_from_deployment(ours).id,
            "pending": client.create_flow_run_from_deployment(ours).id,
            "scheduled": client.create_flow_run_from_deployment(ours).id,
            "other flow": client.create_flow_run_from_deployment(others).id,
            "other dataset": client.create_flow_run_from_deployment(foreign).id,
            "by hand": client.create_flow_run(train, parameters={"dataset": "mnist"}).id,
        }
        for name, id_ in made.items():
            if name != "scheduled":
                client.set_flow_run_state(id_, Pending() if name == "pending" else Running(), force=True)
        try:
            settle_abandoned_runs()
            states = {name: client.read_flow_run(id_).state for name, id_ in made.items()}
        finally:
            for id_ in made.values():
                client.delete_flow_run(id_)
            for id_ in (ours, others, foreign):
                client.delete_deployment(id_)
    types = {name: state.type.value for name, state in states.items() if state is not None}
    assert types == {
        "running": "CRASHED", "pending": "CRASHED", "scheduled": "SCHEDULED", "other flow": "RUNNING",
        "other dataset": "RUNNING", "by hand": "RUNNING",
    }  # fmt: skip
    assert states["running"] is not None
    assert states["running"].message == RECONCILED


# ---------------------------------------------------------------------------------------------------------------- keep


class Children:
    """What `keep` starts: real processes that sleep or end, in the place of the server and the deployments."""

    def __init__(self) -> None:
        self.deployments = self.server = "import time; time.sleep(60)"
        self.made: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, command: list[str], environment: dict[str, str], *, quiet: bool = False) -> Any:
        name = "deployments" if "--deployments" in command else "server"
        assert command[:2] == [sys.executable, "-m"]
        self.made[name] = subprocess.Popen([sys.executable, "-c", getattr(self, name)])
        return self.made[name]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Children]:
    made = Children()
    monkeypatch.setattr(serving, "spawn", made.spawn)
    monkeypatch.setattr(serving, "answers", lambda api: False)
    monkeypatch.setattr(serving, "wait_until_healthy", lambda *args, **options: None)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4299/api")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)
    left = [process for process in made.made.values() if process.poll() is None]
    for process in left:
        process.kill()
        process.wait()
    assert not left, "keep left a child behind"


def signal_when_started(children: Children, number: int) -> None:
    def send() -> None:
        deadline = time.monotonic() + 30
        while "deployments" not in children.made and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_was_started_and_that_is_success(children: Children, number: int) -> None:
    signal_when_started(children, number)
    assert keep() == 0
    assert {name: process.returncode for name, process in children.made.items()} == {
        "server": -signal.SIGTERM, "deployments": -signal.SIGTERM,
    }  # fmt: skip


def test_a_server_that_answers_is_not_started_again(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "answers", lambda api: api == "http://127.0.0.1:4299/api")
    signal_when_started(children, signal.SIGTERM)
    assert keep() == 0
    assert set(children.made) == {"deployments"}


@pytest.mark.parametrize(("name", "said"), [("server", "the Prefect server"), ("deployments", "the deployments")])
def test_a_child_that_ends_by_itself_is_a_failure(
    children: Children, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    setattr(children, name, "raise SystemExit(3)")
    assert keep() == 1
    assert f"error: {said} ended with status 3" in capsys.readouterr().err


def test_a_server_that_can_not_start_is_a_failure(
    children: Children, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise ServeError("the Prefect server ended at its start")

    monkeypatch.setattr(serving, "wait_until_healthy", fail)
    assert keep() == 1
    assert "error: the Prefect server ended at its start" in capsys.readouterr().err
    assert set(children.made) == {"server"}


def test_a_second_one_on_the_same_checkout_is_refused(
    children: Children, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").mkdir()
    with Lock(tmp_path / "home" / "serve.lock"):
        assert keep() == 1
    assert f"error: process {os.getpid()} serves this checkout already" in capsys.readouterr().err
    assert not children.made
    signal_when_started(children, signal.SIGTERM)
    assert keep() == 0  # once the first is gone
