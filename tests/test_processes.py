"""Real processes on 127.0.0.1: disjoint shares, the same training, and one that dies ends all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from mesh_case import (
    BATCH,
    EPOCH,
    STEPS,
    ids_of,
    job_for,
    losses,
    note_ids,
    request_for,
    same_within_rounding,
    whole_order,
)

from datasets.errors import NonFiniteError, TrainingError
from tasks import processes
from tasks.artifact import Artifact, Store
from tasks.capsule import load_capsule
from tasks.feed import columns
from tasks.parallel import Parallel
from tasks.pipeline import Pipeline
from tasks.processes import as_json, error_json, train_together
from tasks.training import train

HERE = Path(__file__).parent
CHILD = """
import json, os, sys
from pathlib import Path
from mesh_case import *
from tasks import one_process

notes, doom = Path(os.environ["NOTES"]), json.loads(os.environ["DOOM"])

def made(said):
    import jax
    note_ids(notes / f"ids-{jax.process_index()}")
    if doom[0] == jax.process_index():
        at_step(doom[1], doom[2])
    return job_of(said)

one_process.main(int(sys.argv[1]), made)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def inputs(store: Path) -> dict[str, Artifact]:
    return toy.prepare(request_for(store, Parallel()))


@pytest.fixture(scope="module")
def alone(store: Path, inputs: Any) -> list[float]:
    """Losses of the same training in one process."""
    request = request_for(store, Parallel())
    return losses(request, train(job_for(request, "alone", "alone"), **inputs))


def together(
    monkeypatch: pytest.MonkeyPatch, store: Path, inputs: Any, notes: Path, key: str, training: str,
    doom: tuple[int, int, str] = (-1, -1, ""), **recipe: Any,
) -> Artifact:  # fmt: skip
    """A training in two processes, which note what they read; `doom` is who kills itself before which step."""
    environment = {
        "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}", "JAX_PLATFORMS": "cpu", "NOTES": str(notes),
        "DOOM": json.dumps(doom), "RECIPE": json.dumps(recipe), "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notes.mkdir(exist_ok=True)
    job = job_for(request_for(store, Parallel(1, 2), **recipe), key, training)
    return train_together(job, inputs, ("-c", CHILD))


def test_two_processes_read_disjoint_shares_and_train_as_one(
    store: Path, inputs: Any, alone: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = together(monkeypatch, store, inputs, tmp_path / "notes", "two", "a")
    shares = [ids_of(tmp_path / "notes" / f"ids-{process}") for process in (0, 1)]
    assert {len(ids) for share in shares for ids in share.values()} == {BATCH // 2}
    assert {step: shares[0][step] + shares[1][step] for step in shares[0]} == whole_order()
    request = request_for(store, Parallel(1, 2))
    assert same_within_rounding(losses(request, artifact), alone)
    manifest = Store(store).manifest(artifact)
    assert manifest["facts"]["steps"] == STEPS
    traces = manifest["provenance"]["notes"]["traces"]
    assert {name: report["used"] for name, report in traces.items()} == {"train": 1, "eval": 1}


@pytest.mark.slow
def test_one_killed_ends_all_and_another_number_of_processes_goes_on(
    store: Path, inputs: Any, alone: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with pytest.raises(TrainingError, match="a process of the training died") as caught:
        together(monkeypatch, store, inputs, tmp_path / "notes", "killed", "b", doom=(1, 10, "SIGKILL"))
    assert (caught.value.facts["process"], caught.value.facts["got"]) == (1, "signal SIGKILL")
    assert time.monotonic() - began < processes.MEET, "only the start's limit ended it"
    assert subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "one_process"], capture_output=True).stdout == b""
    assert not (store / "weights" / "toy" / "killed").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "batch", Pipeline.batch)  # put back what note_ids replaces
        note_ids(tmp_path / "notes" / "ids-alone")
        request = request_for(store, Parallel())
        artifact = train(job_for(request, "goes-on", "b"), **inputs)
    first, second = (ids_of(tmp_path / "notes" / f"ids-{process}") for process in (0, 1))
    after = ids_of(tmp_path / "notes" / "ids-alone")
    resumed = min(after)
    assert resumed in (8, EPOCH)  # that of the evaluation, if it was committed by then
    seen = {step: first[step] + second[step] for step in range(resumed)} | after
    assert seen == whole_order()
    assert same_within_rounding(losses(request, artifact), alone)
    assert Store(store).facts(artifact)["meshes"] == [[0, 2, 1], [resumed, 1, 1]]


@pytest.mark.slow
def test_a_bad_batch_trips_all_and_its_capsule_holds_all_of_it(
    store: Path, inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NonFiniteError) as caught:
        together(monkeypatch, store, inputs, tmp_path / "notes", "bad", "n", learning_rate=1e38)
    step = int(caught.value.facts["step"])
    capsule = load_capsule(Path(str(caught.value.facts["capsule"])))
    assert capsule.ids == whole_order()[step]
    source = columns(Store(store), request_for(store, Parallel()), inputs["records"], "train")
    np.testing.assert_array_equal(capsule.batch["label"], source.read(np.array(capsule.ids))["label"])
    assert capsule.batch["image"].shape == (BATCH, 9, 8, 1)


@pytest.mark.slow
def test_one_that_hangs_ends_all_when_its_heartbeats_are_missed(
    store: Path, inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HEARTBEAT", 10)
    began = time.monotonic()
    with pytest.raises(TrainingError, match="a process of the training died") as caught:
        together(monkeypatch, store, inputs, tmp_path / "notes", "hangs", "h", doom=(1, 10, "SIGSTOP"))
    print(f"ended {time.monotonic() - began:.0f} s after its start: {caught.value.facts}")
    assert caught.value.facts["process"] == 0  # which JAX ended; the one that hangs was ended last


# ------------------------------------------------------------------- the watch over processes, held by cheap ones


def watched(store: Path, inputs: Any, *behaviours: str) -> Artifact:
    """A training whose processes run these lines of Python; `work` is what they were told, `report` tells."""
    code = (
        "import json, os, signal, sys, time\nwork = json.load(sys.stdin)\n"
        "def report(said): os.write(int(sys.argv[1]), json.dumps(said).encode() + b'\\n')\n"
        f"exec({list(behaviours)!r}[work['process']])"
    )
    request = request_for(store, Parallel(1, len(behaviours)))
    return train_together(job_for(request, "watched", "w"), inputs, ("-c", code))


def test_what_process_0_made_is_the_result_and_what_all_say_is_logged(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    made = Artifact("weights", "toy", "watched", "0" * 64)
    report = f"report({{'artifact': {made.to_json()!r}}})"
    assert watched(tmp_path, {}, f"print('hello'); {report}", f"time.sleep(0.2); {report}; print('bye')") == made
    assert "process 0: hello" in said.text
    assert "process 1: bye" in said.text


def test_each_is_told_who_it_is_where_to_meet_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "told-"
    tell = f"open({str(path)!r} + str(work['process']), 'w').write(json.dumps(work)); sys.exit(3)"
    with pytest.raises(TrainingError):
        watched(tmp_path, {"records": Artifact("records", "toy", "k", "d")}, tell, tell)
    told = [json.loads(path.with_name(f"told-{process}").read_text()) for process in (0, 1)]
    assert [one.pop("process") for one in told] == [0, 1]
    assert told[0] == told[1]
    assert told[0]["coordinator"].startswith("127.0.0.1:")
    assert told[0]["inputs"] == {"records": {"kind": "records", "dataset": "toy", "key": "k", "digest": "d"}}
    assert told[0]["job"]["request"]["processes"] == 2


def test_a_typed_error_is_raised_as_it_was_and_before_what_it_led_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE", 10.0)
    error = NonFiniteError("the loss isn't finite", cure="look", step=7, leaves=("a", "b"))
    late = f"time.sleep(0.5); report({{'error': {error_json(error)!r}}}); sys.exit(1)"
    with pytest.raises(NonFiniteError, match="the loss isn't finite") as caught:
        watched(tmp_path, {}, "sys.exit(9)", late)
    assert caught.value.facts == {"step": 7, "leaves": "('a', 'b')", "process": 1}
    assert caught.value.cure == "look"


def test_who_hangs_when_another_is_gone_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.3)
    path = tmp_path / "pid"
    hang = f"open({str(path)!r}, 'w').write(str(os.getpid())); signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    with pytest.raises(TrainingError) as caught:
        watched(tmp_path, {}, hang, f"\nwhile not os.path.exists({str(path)!r}): pass\nos.kill(os.getpid(), 11)")
    assert (caught.value.facts["process"], caught.value.facts["got"]) == (1, "signal SIGSEGV")
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_a_signal_is_handed_on_and_the_run_ends_as_stopped(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    ready = tmp_path / "ready"
    wait = f"open({str(ready)!r} + str(work['process']), 'w'); time.sleep(600)"

    def tell() -> None:
        while len(list(tmp_path.glob("ready?"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        with pytest.raises(TrainingError, match="was stopped"):
            watched(tmp_path, {}, wait, wait)
    finally:
        signal.signal(signal.SIGTERM, before)
        thread.join()


def test_processes_end_with_the_run_that_started_them(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeping = (
        "from tasks.one_process import end_with; end_with(work['parent']); "
        f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    run = toy.python(
        f"from pathlib import Path\nfrom test_processes import watched\n"
        f"watched(Path({str(tmp_path)!r}), {{}}, {sleeping!r})"
    )
    while not (pid.exists() and pid.read_text()):
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    run.kill()
    run.communicate()
    command, deadline = Path("/proc", pid.read_text(), "cmdline"), time.monotonic() + 20
    while command.exists() and b"json.load" in command.read_bytes():
        assert time.monotonic() < deadline, "a process outlived its run"
        time.sleep(0.05)


def test_a_job_travels_as_json(tmp_path: Path) -> None:
    from tasks.one_process import job_of
    from tasks.request import check

    request = check("mnist", store=tmp_path, epochs=3, learning_rate=0.5, devices=2, processes=2, batch_size=64)
    job = replace(toy.job(request, "fit", "k"), components={"a": [1]}, anew=True)
    again = job_of(json.loads(json.dumps(as_json(job))))
    assert again.request == replace(request, dataset=again.request.dataset)
    assert again.request.dataset.recipe == request.dataset.recipe
    assert (again.stage, again.key, again.components, again.anew) == ("fit", "k", {"a": [1]}, True)
