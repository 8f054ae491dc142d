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
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment

import datasets
from datasets.errors import ParameterError, ServeError
from tasks import serving
from tasks.backlog import FLOW, FLOWS, MODELS, STORE
from tasks.lock import Lock
from tasks.serving import clean_options, deployment_options, keep, promote_options

# --------------------------------------------------------------------------------------------------------- deployments


def test_every_dataset_file_is_a_deployment(said: pytest.LogCaptureFixture) -> None:
    options = list(deployment_options())
    assert [option["name"] for option in options] == datasets.names()
    assert "train/mnist is scheduled at 0 2 * * *, UTC" in said.messages
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
        nightly = datasets.load(option["name"]).nightly
        expected = [] if nightly is None else [(nightly.cron, nightly.timezone)]
        schedules = cast(list[Any], made.schedules or [])
        assert [(row.schedule.cron, row.schedule.timezone) for row in schedules] == expected


def test_the_store_is_cleaned_by_the_clock_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.clean import clean

    def schedules() -> list[tuple[str, str]]:
        made = cast(RunnerDeployment, clean.to_deployment(**clean_options()))
        assert (made.flow_name, made.name, made.entrypoint) == ("clean", STORE, "flows.clean.clean")
        return [(cast(Any, row).schedule.cron, cast(Any, row).schedule.timezone) for row in made.schedules or []]

    assert schedules() == [("0 5 * * *", "UTC")]  # of prefect.toml
    monkeypatch.setenv("GRISTMILL_CLEAN", "30 4 * * 7 Europe/Berlin")
    assert schedules() == [("30 4 * * 7", "Europe/Berlin")]
    monkeypatch.setenv("GRISTMILL_CLEAN", "")
    assert schedules() == []
    for wrong in ("@daily", "0 5 * *", "0 5 * * * Mars/Olympus"):
        monkeypatch.setenv("GRISTMILL_CLEAN", wrong)
        with pytest.raises(ParameterError):
            clean_options()


def test_a_champion_is_changed_by_a_deployment_of_its_own() -> None:
    from flows.promote import promote

    made = cast(RunnerDeployment, promote.to_deployment(**promote_options()))
    assert (made.flow_name, made.name, made.entrypoint) == ("promote", MODELS, "flows.promote.promote")
    assert not made.schedules
    assert made.flow_name in FLOWS


def test_a_schedule_survives_a_restart_once_and_active(prefect_server: str) -> None:
    from flows.train import train

    option = next(option for option in deployment_options() if option["name"] == "mnist")
    with get_client(sync_client=True) as client:
        made = [cast(Any, cast(RunnerDeployment, train.to_deployment(**option)).apply()) for _ in range(2)]
        id_ = made[0]
        assert made[1] == id_
        try:
            (schedule,) = client.read_deployment(id_).schedules
        finally:
            client.delete_deployment(id_)
    assert schedule.active
    assert cast(Any, schedule.schedule).cron == "0 2 * * *"


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
