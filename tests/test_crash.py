"""Kill it anywhere: the next run ends with the same weights, bit for bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flow_process import digests, finish, kill, kill_after, start, states

OPTIONS = ("--epochs", "3", "--checkpoint-every", "13", "--batch-size", "64")
STEPS = 3 * (9000 // 64)
KILLS_IN_A_ROW = 4


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: what every other must end with, and how long it took."""

    store: Path
    summary: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def reference(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    store = tmp_path_factory.mktemp("reference")
    started = time.monotonic()
    summary = finish(start(store, *OPTIONS))
    return Reference(store, summary, time.monotonic() - started)


def without_fit(reference: Reference, store: Path) -> Path:
    """A store that holds the reference's stages before `fit`, so that kills hit the training and what follows."""
    shutil.copytree(reference.store, store, ignore=shutil.ignore_patterns("checkpoints", "models", "tmp"))
    for stage in ("fit", "evaluate", "promote"):
        key = next(row["key"] for row in reference.summary["stages"] if row["name"] == stage)
        (store / "cache" / key).unlink()
    for kind in ("weights", "evaluation", "decision"):
        shutil.rmtree(store / kind)
    return store


@pytest.fixture
def prepared(reference: Reference, tmp_path: Path) -> Path:
    return without_fit(reference, tmp_path / "store")


def progress(store: Path) -> int:
    """Step of the newest checkpoint."""
    steps = [int(path.name) for path in store.glob("checkpoints/mnist/*/*") if path.name.isdigit()]
    return max(steps, default=0)


def wait_for(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


def test_a_fit_that_was_killed_half_way_is_resumed(reference: Reference, prepared: Path) -> None:
    process = start(prepared, *OPTIONS)
    wait_for(lambda: progress(prepared) >= STEPS // 3)
    assert kill(process)
    reached = progress(prepared)
    assert 0 < reached < STEPS
    again = finish(start(prepared, *OPTIONS))
    assert states(again) == {
        "fetch": "cached", "convert": "cached", "validate": "cached", "feed": "cached", "fit": "resumed",
        "evaluate": "ran", "promote": "ran",
    }  # fmt: skip
    assert digests(again) == digests(reference.summary)
    third = finish(start(prepared, *OPTIONS))
    assert set(states(third).values()) == {"cached"}
    assert digests(third) == digests(reference.summary)


def test_sigterm_saves_at_the_next_step_and_the_next_run_goes_on_there(reference: Reference, prepared: Path) -> None:
    options = (*OPTIONS[:3], "100000", *OPTIONS[4:])  # no checkpoint but the one that the signal causes
    process = start(prepared, *options)
    log = prepared / "checkpoints" / "mnist"
    wait_for(lambda: any(path.stat().st_size for path in log.glob("*/metrics.jsonl")))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0
    reached = progress(prepared)
    assert 0 < reached < STEPS
    again = finish(start(prepared, *options))
    assert states(again)["fit"] == "resumed"
    assert digests(again) == digests(reference.summary)


def test_killed_from_the_very_start_at_random_moments(reference: Reference, tmp_path: Path) -> None:
    chance = random.Random(20261130)
    store = tmp_path / "store"
    for _ in range(KILLS_IN_A_ROW):
        kill_after(start(store, *OPTIONS), chance.uniform(0.2, 1.1) * reference.seconds)
    assert digests(finish(start(store, *OPTIONS))) == digests(reference.summary)
    assert not [path for path in (store / "tmp").iterdir() if path.is_dir()], "a killed run's draft was left behind"


@pytest.mark.slow
def test_a_hundred_kills(reference: Reference, tmp_path: Path) -> None:
    kills, lines = int(os.environ.get("GRISTMILL_KILLS", "100")), []
    chance, done, run = random.Random(7), 0, 0
    while done < kills:
        store, hit, run = without_fit(reference, tmp_path / f"run-{run}"), [], run + 1
        while True:
            process = start(store, *OPTIONS)
            if done >= kills or not kill_after(process, chance.uniform(0.3, 1.3) * reference.seconds):
                break
            done += 1
            hit.append(progress(store))
        end = finish(start(store, *OPTIONS))
        lines.append(f"run {run:3}: killed at checkpoints {hit}, equal: {digests(end) == digests(reference.summary)}")
        print(lines[-1], flush=True)
        assert digests(end) == digests(reference.summary)
        shutil.rmtree(store)
