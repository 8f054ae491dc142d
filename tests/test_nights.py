"""Thirty nights in a few minutes: data that changes, a bad file, a crash, a full disk, a service that is down.

Every morning the champion must be that of a store in which the same good nights were run one after the other without
any trouble; the store must stay small under `flows.clean`; and no run may be left Running. Time is faked by making
everything in the store a day older after each night.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from checkouts import NAME, Checkout, patient
from forks import TO_PLAN, TO_TRAIN
from prefect.states import Scheduled
from served import Service, wait_for

from tasks.artifact import Store
from tasks.backlog import BY_SCHEDULE, SKIPPED
from tasks.registry import Registry

DAY = 24 * 3600
COUNT = int(os.environ.get("GRISTMILL_NIGHTS", "30"))
DISK_FULL = 'raise OSError(28, "No space left on device")'


@dataclass(frozen=True)
class Night:
    """What is different in a night.

    Attributes:
        data: Seed and turn of new raw data (see `Checkout.write_raw`); None for those of the night before.
        trouble: "bad file", "crash", "full disk", "service down", or none.
    """

    data: tuple[int, int] | None = None
    trouble: str = ""


NIGHTS = {
    1: Night((0, 0)), 4: Night((1, 0)), 7: Night((1, 1)), 9: Night((2, 1), "bad file"), 10: Night((2, 1)),
    13: Night((3, 2), "crash"), 16: Night(trouble="service down"), 17: Night((4, 2), "service down"), 18: Night(),
    20: Night((5, 2), "full disk"), 23: Night((0, 0)), 26: Night((6, 0)), 29: Night((6, 1)),
}  # fmt: skip
"""By number; in all others nothing is different."""
SHORT = {1: Night((0, 0)), 2: Night((1, 1), "bad file"), 3: Night((1, 1), "crash"), 4: Night((2, 1), "full disk")}


class Nights:
    """A store of its own for the nights, and one that only ever saw good nights."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout, self.root, self.clean = checkout, checkout.store, checkout.root / "clean"

    def champion(self, root: Path) -> tuple[str, str] | None:
        """Version and digest of the weights of the champion, every byte of it verified."""
        champion = Registry(Store(root), NAME).champion()
        return None if champion is None else (champion.version, champion.weights)

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.root.rglob("*") if path.is_file())

    def grow_older(self) -> None:
        """Makes everything a day older."""
        for path in self.root.rglob("*"):
            at = path.stat()
            os.utime(path, (at.st_atime - DAY, at.st_mtime - DAY))

    def reference(self) -> None:
        """A good night in the clean store."""
        self.checkout.train("--store", str(self.clean))

    def cleaned(self) -> int:
        """Bytes that `flows.clean` removed."""
        options = ("--store", str(self.root), "--days", "3", "--keep", "2")
        return self.checkout.run("flows.clean", "--json", *options).json()["bytes"]


def prepared(checkout: Checkout, night: Night) -> AbstractContextManager[Any]:
    """The night's data, and a disk that is full while the context is open."""
    if night.data is not None:
        checkout.write_raw(*night.data)
    if night.trouble == "bad file":
        content = checkout.raw.read_bytes()
        checkout.raw.write_bytes(content[:200] + b"?" * (len(content) - 200))
    if night.trouble == "full disk":
        return checkout.inserted("tasks.durable:write_bytes", DISK_FULL)
    return nullcontext()


EXPECTED = {"": "Completed", "bad file": "Failed", "crash": "Crashed", "full disk": "Failed", "service down": "Late"}


def simulate(
    store: Nights, nights: dict[int, Night], count: int, run: Callable[[Night], str], left: Callable[[], list[str]]
) -> None:
    """Runs the nights and holds every morning against the clean store; prints a table."""
    print(f"\n{'night':>5} {'data':12} {'trouble':14} {'run':11} {'champion':9} right  store")
    sizes, fresh, data = list[int](), False, (0, 0)
    for number in range(1, count + 1):
        night = nights.get(number, Night())
        fresh, data = fresh or night.data is not None, night.data or data
        with prepared(store.checkout, night):
            state = run(night)
        if state == "Completed" and fresh:
            store.reference()
            fresh = False
        champion, right = store.champion(store.root), store.champion(store.clean)
        store.cleaned()
        sizes.append(store.bytes())
        what = "new" if night.data is not None else ""
        version = champion[0] if champion else "-"
        print(f"{number:5} {what:12} {night.trouble:14} {state:11} {version:9} {champion == right!s:6} "
              f"{sizes[-1] / 1e6:.2f} MB", flush=True)  # fmt: skip
        assert state == EXPECTED[night.trouble], night
        assert champion == right
        assert left() == []
        store.grow_older()
        if night.trouble == "bad file":
            store.checkout.write_raw(*data)  # the supplier mends it the next day
    assert max(sizes) < 4 * sizes[0], "the store grows"


@pytest.fixture
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Checkout]:
    with (
        Checkout(tmp_path / "checkout", (*TO_PLAN, *TO_TRAIN)) as made,
        made.edited("tasks/cache.py", "FIRST_PAUSE = 2.0", "FIRST_PAUSE = 0.05"),
        patient(made),  # silent runs are the business of test_service.py
    ):
        yield made


def test_a_few_nights(prefect_server: str, checkout: Checkout) -> None:
    def run(night: Night) -> str:
        point = "tasks.training:save_weights:1:before" if night.trouble == "crash" else None
        return {0: "Completed", 1: "Failed", -9: "Crashed"}[checkout.run("flows.train", NAME, point=point).status]

    simulate(Nights(checkout), SHORT, 5, run, lambda: [])


@pytest.mark.slow
def test_thirty_nights(checkout: Checkout, tmp_path: Path) -> None:
    missed = []
    with Service(checkout.root, tmp_path) as service:
        checkout.environment["PREFECT_API_URL"] = service.api
        service.serve()

        def run(night: Night) -> str:
            assert service.deployments is not None
            down = service.deployments.poll() is not None
            if night.trouble == "service down":
                if not down:
                    service.end(service.deployments)
                missed.append(scheduled(service, hours=len(missed) - 5))
                return "Late"
            this = scheduled(service, hours=-1 if down else 0)
            if down:
                service.serve()
            if night.trouble == "crash":
                wait_for(lambda: training(checkout, service.process_of(this)), "the training")
                os.kill(service.process_of(this) or 0, signal.SIGKILL)
            state = service.wait(this).name or ""
            assert {service.state(run).message for run in missed} <= {SKIPPED}
            return state

        simulate(Nights(checkout), NIGHTS, COUNT, run, lambda: service.unfinished() + service.stages_left())
        down = [number for number, night in NIGHTS.items() if night.trouble == "service down" and number <= COUNT]
        assert len(missed) == len(down)


def scheduled(service: Service, hours: float) -> Any:
    """A run as the schedule makes it, due some hours from now."""
    with service.client() as client:
        deployment = client.read_deployment_by_name(f"train/{NAME}")
        state = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(hours=hours))
        return client.create_flow_run_from_deployment(deployment.id, state=state, tags=(BY_SCHEDULE,)).id


def training(checkout: Checkout, pid: int | None) -> bool:
    locks = checkout.store.glob(f"checkpoints/{NAME}/*/.lock")
    return pid is not None and f"{pid}\n" in [lock.read_text() for lock in locks]
