"""Kill it anywhere: the next run ends with the same weights, bit for bit, trained on the same examples."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flow_process import ROOT, digests, finish, kill, options_of, start, states
from forks import TO_PLAN, TO_TRAIN, Forks

from tasks.metric_log import read_metrics

EPOCHS, BATCH = 2, 64
STEPS = EPOCHS * (9000 // BATCH)
RECIPE = (f"--epochs={EPOCHS}", f"--batch-size={BATCH}")
OPTIONS = (*RECIPE, "--checkpoint-every=13")
NEVER = "--checkpoint-every=100000"
RANDOM_KILLS = 3


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: what every other must end with, and how long it took.

    Attributes:
        store: Of the run.
        summary: What it printed.
        before_fit_s: Seconds until the training began.
        after_that_s: Seconds from there to the end.
        seen: Digest of each step's batch.
    """

    store: Path
    summary: dict[str, Any]
    before_fit_s: float
    after_that_s: float
    seen: dict[int, set[str]]


@pytest.fixture(scope="module")
def reference(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    store, started = folder / "store", time.monotonic()
    process = start(store, *OPTIONS, seen=folder / "seen")
    wait_for(lambda: training(store) == process.pid, process)
    began = time.monotonic()
    summary = finish(process)
    seen = batches(folder / "seen")
    assert list(seen) == list(range(STEPS))
    assert len({digest for one in seen.values() for digest in one}) == STEPS  # else equal batches would prove nothing
    return Reference(store, summary, began - started, time.monotonic() - began, seen)


def batches(seen: Path) -> dict[int, set[str]]:
    """The digests of the batches that each step was given, over all runs that noted them."""
    steps: dict[int, set[str]] = {}
    for line in seen.read_text().splitlines():
        step, digest = line.split()
        steps.setdefault(int(step), set()).add(digest)
    return steps


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


def training(store: Path) -> int | None:
    """Process id of the last training that opened its checkpoints."""
    try:
        return int(next(store.glob("checkpoints/mnist/*/.lock")).read_text())
    except (StopIteration, ValueError, OSError):
        return None


def progress(store: Path) -> int:
    """Step of the newest checkpoint."""
    steps = [int(path.name) for path in store.glob("checkpoints/mnist/*/*") if path.name.isdigit()]
    return max(steps, default=0)


def logged(store: Path) -> bool:
    """Whether the training has logged steps."""
    return any(path.stat().st_size for path in store.glob("checkpoints/mnist/*/metrics.jsonl"))


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.003)


def kill_later(process: subprocess.Popen[str], store: Path, chance: random.Random, reference: Reference) -> bool:
    """SIGKILL to the command's process alone, as the kernel's out-of-memory killer does; False if it was faster.

    One in four comes at any moment from its start, the others at any moment of the training and what follows.
    """
    if chance.random() < 0.25:
        delay = chance.uniform(0, reference.before_fit_s + reference.after_that_s)
    else:
        wait_for(lambda: training(store) == process.pid, process)
        delay = chance.uniform(0, reference.after_that_s)
    deadline = time.monotonic() + delay
    wait_for(lambda: time.monotonic() > deadline, process)
    return kill(process)


POINTS = {
    "a checkpoint's arrays are written, its manifest isn't": "tasks.durable:write_json:3:before",
    "during the restore: verified, not loaded": "tasks.snapshot:verify:1:after",
    "during the restore again: some arrays are on the device": "tasks.leaves:_place:5:before",
    "restored, the metric log isn't cut back yet": "tasks.metric_log:write_bytes:1:before",
    "while an old checkpoint is deleted": "tasks.retention:remove:2:before",
    "in the middle of the test split, inside the training": "tasks.eval_step:EvalStep.__call__:9:before",
    "all steps are done, no weights are written": "tasks.training:save_weights:1:before",
    "the weights are there, the cache doesn't know": "tasks.artifact:Store._publish:1:after",
    "in the middle of the test split, in evaluate": "tasks.predictor:pad_batch:3:before",
    "the version is made, the champion is not": "tasks.registry:Registry.crown:1:before",
    "the champion is made, the decision isn't recorded": "tasks.registry:Registry.crown:1:after",
}
"""One after the other in one store, each in a run that goes on from what the one before left."""
SAMPLE = [moment for i, moment in enumerate(POINTS) if i % 2 == 0]


@pytest.mark.parametrize("moments", [SAMPLE, pytest.param([*POINTS], marks=pytest.mark.slow)], ids=["sample", "all"])
def test_killed_at_each_of_the_worst_moments(
    reference: Reference, prepared: Path, tmp_path: Path, moments: list[str]
) -> None:
    seen, options = str(tmp_path / "seen"), options_of(prepared, *OPTIONS)
    with closing(Forks(ROOT, (*TO_PLAN, *TO_TRAIN))) as forks:
        for moment in moments:
            killed = forks.run("tests.doomed", POINTS[moment], seen, *options)
            assert killed.status == -signal.SIGKILL, (moment, killed)
            print(f"killed: {moment}; newest checkpoint {progress(prepared)}")
        end = forks.run("tests.doomed", "-", seen, *options).json()
    assert states(end) == dict.fromkeys(states(end), "cached") | {"promote": "ran"}
    assert digests(end) == digests(reference.summary)
    assert end["champion"] == "v1"
    assert batches(tmp_path / "seen") == reference.seen
    leftovers = [path for path in prepared.glob("checkpoints/mnist/*/.*") if path.name != ".lock"]
    assert not leftovers
    assert not [path for path in (prepared / "tmp").iterdir() if path.is_dir()]


def test_killed_at_random_moments_from_the_very_start(reference: Reference, tmp_path: Path) -> None:
    chance, store = random.Random(20261130), tmp_path / "store"
    for _ in range(RANDOM_KILLS):
        kill_later(start(store, *OPTIONS, seen=tmp_path / "seen"), store, chance, reference)
    assert digests(finish(start(store, *OPTIONS, seen=tmp_path / "seen"))) == digests(reference.summary)
    assert batches(tmp_path / "seen") == reference.seen
    assert not [path for path in (store / "tmp").iterdir() if path.is_dir()], "a killed run's draft was left behind"


# The sample of worst moments is six kills in a row
@pytest.mark.slow
def test_killed_twice_in_a_row_with_a_checkpoint_every_step(reference: Reference, prepared: Path) -> None:
    reached = []
    for _ in range(2):
        before = progress(prepared)
        process = start(prepared, *RECIPE, "--checkpoint-every=1")
        wait_for(lambda before=before: progress(prepared) >= before + 3, process)
        assert kill(process)
        reached.append(progress(prepared))
    assert 0 < reached[0] < reached[1] < STEPS
    again = finish(start(prepared, *OPTIONS))  # another interval is no other training
    assert states(again)["fit"] == "resumed"
    assert again["traces"]["train"] == again["traces"]["eval"] == [1, 1]
    assert again["compiled"]["train"] == again["compiled"]["eval"] == "from cache"  # a resume compiles nothing
    assert digests(again) == digests(reference.summary)


@pytest.mark.slow
def test_of_two_equal_runs_one_takes_over_when_the_other_is_killed(reference: Reference, prepared: Path) -> None:
    one, other = (start(prepared, *RECIPE, "--checkpoint-every=1") for _ in range(2))
    by_id = {process.pid: process for process in (one, other)}
    wait_for(lambda: training(prepared) in by_id and progress(prepared) >= 3, one)
    first = training(prepared)
    assert first is not None
    reached, killed = progress(prepared), time.monotonic()
    assert kill(by_id.pop(first))
    (second,) = by_id.values()
    wait_for(lambda: training(prepared) == second.pid, second)
    print(f"\nthe other took over {time.monotonic() - killed:.1f} s after the kill")
    end = finish(second)
    assert states(end)["fit"] == "resumed"
    assert end["resumed_from"] >= reached
    assert digests(end) == digests(reference.summary)


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_saves_at_the_next_step_and_a_second_one_stops_at_once(
    reference: Reference, prepared: Path, signals: int
) -> None:
    process = start(prepared, *RECIPE, NEVER, "--keep-best=0")  # no checkpoint but the one that the signal causes
    wait_for(lambda: logged(prepared), process)
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)  # two at once would be one
    process.communicate(timeout=60)
    assert process.returncode != 0
    reached = progress(prepared)
    if signals == 1:
        assert 0 < reached < STEPS
    again = finish(
        start(prepared, *RECIPE, NEVER, "--keep-best=0", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    )
    assert states(again)["fit"] == ("resumed" if reached else "ran")
    assert again["traces"]["train"] == [1, 1]
    assert digests(again) == digests(reference.summary)


@pytest.mark.slow
def test_a_deployments_run_that_is_cancelled_is_saved_and_gone_on_with(prefect_server: str, tmp_path: Path) -> None:
    from prefect import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Cancelling

    store, recipe = tmp_path / "store", {"epochs": 300, "batch_size": BATCH, "keep_best": 0}
    with (tmp_path / "log").open("wb") as log, get_client(sync_client=True) as client:
        serving = subprocess.Popen(
            [sys.executable, "-m", "flows.serve"], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )

        def served() -> bool:
            try:
                return bool(client.read_deployment_by_name("train/mnist"))
            except ObjectNotFound:
                return False

        try:
            wait_for(served, serving)
            run = client.create_flow_run_from_deployment(
                client.read_deployment_by_name("train/mnist").id,
                parameters={"dataset": "mnist", "model": "mlp", "store": str(store), **recipe},
            )
            wait_for(lambda: logged(store), serving)
            client.set_flow_run_state(run.id, Cancelling())
            asked = time.monotonic()
            wait_for(lambda: client.read_flow_run(run.id).state_name == "Cancelled", serving)
            print(f"cancelled {time.monotonic() - asked:.1f} s after it was asked for")
            assert serving.poll() is None
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.wait(120)
    reached = progress(store)
    assert 0 < reached < 300 * (9000 // BATCH)
    (metrics,) = store.glob("checkpoints/mnist/*/metrics.jsonl")
    saved = metrics.read_bytes()
    process = start(store, "--epochs=300", f"--batch-size={BATCH}", "--keep-best=0")
    wait_for(lambda: metrics.stat().st_size > len(saved), process)
    assert kill(process)
    assert metrics.read_bytes().startswith(saved)
    assert [row["step"] for row in read_metrics(metrics) if "loss" in row][reached - 1 : reached + 2] == [
        reached - 1, reached, reached + 1,
    ]  # fmt: skip


def where(store: Path) -> str:
    """What a killed run was about to do, as far as its files tell."""
    for kind, then in (("decision", "the end"), ("evaluation", "promote"), ("weights", "evaluate")):
        if any(store.glob(f"{kind}/mnist/*/manifest.json")):
            return then
    return f"fit, checkpoint {progress(store)}" if training(store) else "before fit"


@pytest.mark.slow
def test_a_hundred_kills(reference: Reference, tmp_path: Path) -> None:
    kills, seen = int(os.environ.get("GRISTMILL_KILLS", "100")), tmp_path / "seen"
    chance, done, run = random.Random(7), 0, 0
    print(f"\n{'run':>4} {'kills':>6}  killed in", flush=True)
    while done < kills:
        store, hit, run = without_fit(reference, tmp_path / f"run-{run}"), [], run + 1
        every = chance.choice((1, 13, 13, 60))
        while done < kills:
            process = start(store, *RECIPE, f"--checkpoint-every={every}", seen=seen)
            if not kill_later(process, store, chance, reference):
                break
            done += 1
            hit.append(where(store))
        end = finish(start(store, *OPTIONS, seen=seen))
        equal = digests(end) == digests(reference.summary) and batches(seen) == reference.seen
        found = "; ".join(hit) or "not killed"
        print(f"{run:4} {done:6}  {found} (checkpoint every {every}); equal: {equal}", flush=True)
        assert equal
        seen.unlink()
        shutil.rmtree(store)
    print(f"{done} kills in {run} trainings, {run} of {run} equal to the undisturbed one", flush=True)
