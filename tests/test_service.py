"""A living service: runs that fail, wait, are cancelled, take too long or die, and what the next run does then.

All slow: a server, deployments and a process for each run. The seconds that are printed stand in the README.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from checkouts import NAME, STAGES, Checkout, patient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.states import Cancelling
from served import Service, wait_for

from tasks.backlog import RECONCILED
from tasks.zombies import SECONDS_OF_SILENCE

pytestmark = pytest.mark.slow
LONG = 200_000  # epochs: an hour or so
FIRST = STAGES[: STAGES.index("evaluate")]
OTHER = "one"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with Checkout(tmp_path_factory.mktemp("copy") / "checkout") as made:
        yield made


@pytest.fixture(scope="module")
def service(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(checkout.root, tmp_path_factory.mktemp("service")) as made:
        with patient(checkout):
            made.serve()
        yield made


def out_of_order(checkout: Checkout, stage: str) -> AbstractContextManager[Any]:
    """While open, a stage fails as soon as it works; no key changes."""
    old = '"""The bar of a stage while it works; drawn only where standard error is a terminal."""\n'
    new = f'{old}    if stage == "{stage}":\n        raise ValueError("out of order")\n'
    return checkout.edited("tasks/progress.py", old, new)


def champion(checkout: Checkout) -> bytes:
    return (checkout.store / "models" / NAME / "champion.json").read_bytes()


def training(checkout: Checkout, dataset: str, pid: int | None) -> bool:
    """Whether a process has begun to train."""
    locks = checkout.store.glob(f"checkpoints/{dataset}/*/.lock")
    return pid is not None and f"{pid}\n" in [lock.read_text() for lock in locks]


def newest(checkout: Checkout, dataset: str) -> int:
    """Step of the newest checkpoint of any training."""
    steps = checkout.store.glob(f"checkpoints/{dataset}/*/*")
    return max((int(path.name) for path in steps if path.name.isdigit()), default=0)


def until_it_trains(service: Service, checkout: Checkout, run: UUID, dataset: str) -> int:
    """Process id of a run, once its training goes on."""

    def begun() -> int | None:
        pid = service.process_of(run)
        return pid if training(checkout, dataset, pid) else None

    pid = wait_for(begun, f"the training of {dataset}\n{service.tail()}")
    before = newest(checkout, dataset)
    wait_for(lambda: newest(checkout, dataset) > before, "a checkpoint")
    return pid


def test_after_a_failure_only_the_failed_stage_and_what_follows_run(service: Service, checkout: Checkout) -> None:
    cached = dict.fromkeys(FIRST, "Cached")
    rest = {"evaluate": "Completed", "promote": "Completed"}
    with out_of_order(checkout, "evaluate"):
        failed = service.trigger(NAME)
        service.wait(failed, "Failed")
    assert service.stages(failed) == dict.fromkeys(FIRST, "Completed") | {"evaluate": "Failed"}
    service.retry(failed)
    service.wait(failed, "Completed")
    assert service.stages(failed) == cached | rest

    with out_of_order(checkout, "evaluate"):
        failed = service.trigger(NAME, seed=4)
        service.wait(failed, "Failed")
    again = service.trigger(NAME, seed=4)
    service.wait(again, "Completed")
    assert service.stages(again) == cached | rest
    command = [sys.executable, "-m", "prefect", "flow-run", "retry", str(failed)]
    subprocess.run(command, cwd=checkout.root, env=service.environment, check=True, capture_output=True)
    wait_for(lambda: service.state(failed).name == "Completed", "the retry")
    assert service.stages(failed) == dict.fromkeys(STAGES, "Cached")

    changed = service.trigger(NAME, seed=4, learning_rate=0.02)
    service.wait(changed, "Completed")
    assert service.stages(changed) == cached | {"fit": "Completed"} | rest


def test_nothing_after_a_failed_stage_runs_on_the_output_of_yesterday(service: Service, checkout: Checkout) -> None:
    yesterday = service.trigger(NAME)
    service.wait(yesterday, "Completed")
    before = champion(checkout)
    checkout.write_raw(seed=5)
    with out_of_order(checkout, "fit"):
        today = service.trigger(NAME)
        service.wait(today, "Failed")
    assert service.stages(today) == dict.fromkeys(STAGES[:4], "Completed") | {"fit": "Failed"}
    assert champion(checkout) == before


def test_one_training_of_a_dataset_at_a_time_which_a_cancel_or_a_timeout_ends_in_order(
    service: Service, checkout: Checkout
) -> None:
    first = service.trigger(NAME, epochs=LONG)
    pid = until_it_trains(service, checkout, first, NAME)
    second = service.trigger(NAME, seed=6)
    other = service.trigger(OTHER)
    service.wait(other, "Completed")  # another dataset is trained side by side ...
    assert service.state(first).name == "Running"
    assert service.state(second).name in ("AwaitingConcurrencySlot", "Late", "Scheduled")  # ... and the second waits
    with service.client() as client:
        client.set_flow_run_state(first, Cancelling())
    asked = time.monotonic()
    wait_for(lambda: service.state(first).name == "Cancelled", "the cancel")  # Crashed for a moment: the signal
    print(f"\ncancelled {time.monotonic() - asked:.1f} s after it was asked for")
    assert not Path(f"/proc/{pid}").exists()
    saved = newest(checkout, NAME)
    service.wait(second, "Completed")

    late = service.trigger(NAME, epochs=LONG, timeout=60.0)
    pid = until_it_trains(service, checkout, late, NAME)  # goes on from the checkpoint of the first
    state = service.wait(late, "TimedOut")
    print(f"timed out: {state.message}")
    assert newest(checkout, NAME) > saved > 0
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process", 30)


def test_a_run_without_a_process_is_crashed_and_a_slow_one_is_not(service: Service, checkout: Checkout) -> None:
    assert service.deployments is not None
    service.end(service.deployments)
    service.serve()  # with the patience that a user has
    slow, dead = service.trigger(NAME, epochs=LONG, seed=7), service.trigger(OTHER, epochs=LONG)
    slow_pid, began = until_it_trains(service, checkout, slow, NAME), time.monotonic()
    os.kill(until_it_trains(service, checkout, dead, OTHER), signal.SIGKILL)
    killed = time.monotonic()
    service.wait(dead, "Crashed")
    print(f"\nrun killed under a living service: Crashed after {time.monotonic() - killed:.1f} s")
    service.wait(service.trigger(OTHER), "Completed")  # its slot was freed

    wait_for(lambda: time.monotonic() - began > 1.5 * SECONDS_OF_SILENCE, "time to pass", 2 * SECONDS_OF_SILENCE)
    assert service.state(slow).name == "Running"

    service.end(service.deployments, signal.SIGKILL)
    with suppress(ProcessLookupError):  # without the service its output leads nowhere
        os.kill(slow_pid, signal.SIGKILL)
    killed = time.monotonic()
    state = service.wait(slow, "Crashed", seconds=2 * SECONDS_OF_SILENCE)
    print(f"run and service killed: Crashed after {time.monotonic() - killed:.1f} s: {state.message}")
    assert state.message == f"no heartbeat for {SECONDS_OF_SILENCE} s"
    service.serve()
    fresh = service.trigger(NAME, epochs=LONG, seed=7)
    pid = until_it_trains(service, checkout, fresh, NAME)

    service.end(service.deployments, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    service.serve()
    assert service.wait(fresh, "Crashed").message == RECONCILED  # at the start of the service, without waiting
    service.wait(service.trigger(NAME), "Completed")
    assert service.unfinished() == service.stages_left() == []
    with service.client() as client:  # schedules survived one SIGTERM and two SIGKILLs: on, and once
        nightly = client.read_deployment_by_name("train/mnist")
        waiting = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[nightly.id])),
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Scheduled"]))),
        )
    assert not nightly.paused
    assert [schedule.active for schedule in nightly.schedules] == [True]
    times = [run.expected_start_time for run in waiting]
    assert len(times) == len(set(times)) > 0
