"""What a resumed training finds on disk: damage, a full disk, another machine; it ends the same or says why not."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy
from flow_process import digests, states

from datasets.augment import Shift
from datasets.errors import CheckpointError, DataError
from tasks import training
from tasks.artifact import Artifact, Store
from tasks.metric_log import read_metrics
from tasks.request import Request
from tasks.step import TrainStep
from tasks.training import METRICS

STEPS, STOPPED, STOP_AT, EVERY = 18, (8, 12), 13, 4
HARMS = ("flip", "cut", "delete")


class Stopped(Exception):  # noqa: N818
    pass


@contextmanager
def before_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Calls `act` once, before a step; gives the list of all steps that are done meanwhile."""
    original, done = TrainStep.__call__, []

    def acting(self: TrainStep, carry: Any, batch: Any) -> Any:
        if int(carry.step) == step and step not in done:
            act()
        done.append(int(carry.step))
        return original(self, carry, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "__call__", acting)
        yield done


def stop() -> None:
    raise Stopped


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    request = toy.request_for(tmp_path_factory.mktemp("store"), made, dropout=0.5, augment=(Shift(1),))
    return replace(request, checkpoint_every=EVERY, keep_best=0)


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


@pytest.fixture(scope="module")
def reference(request_: Request, inputs: Any) -> str:
    """Digest of the undisturbed training's weights, metrics and facts."""
    return toy.fitted(request_, inputs, "reference")[0].digest


@pytest.fixture(scope="module")
def stopped(request_: Request, inputs: Any) -> Path:
    """Folder of a training that stopped on its way, with two checkpoints."""
    with pytest.MonkeyPatch.context() as patch, before_step(patch, STOP_AT, stop), pytest.raises(Stopped):
        toy.fitted(request_, inputs, "stopped")
    folder = request_.store / "checkpoints" / "toy" / "stopped"
    assert steps_in(folder) == list(STOPPED)
    return folder


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


# --------------------------------------------------------------------------------------------------------------- damage


def harm(path: Path, how: str, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 if at is None else at
    match how:
        case "flip":
            data[middle : middle + 1] = bytes([data[middle] ^ 1]) if data else b"\1"  # an empty file grows
            path.write_bytes(data)
        case "cut":
            path.write_bytes(data[:middle])
        case "delete":
            path.unlink()


def files_of(step: Path) -> list[str]:
    return sorted(path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file())


def kind_of(file: str) -> str:
    """A file's name without what is random in it."""
    path = Path(file)
    return str(path.parent / "<data>") if path.parent.name == "d" else file


def cells(folder: Path, steps: tuple[int, ...]) -> list[tuple[str, str, Callable[[Path], None]]]:
    """What is harmed, how, and what does it to a copy of the folder: files of the newest step, then of every step."""
    files, made = files_of(folder / str(steps[-1])), []
    for file, how in itertools.product(files, HARMS):
        if how == "cut" and not (folder / str(steps[-1]) / file).stat().st_size:
            continue
        made.append((kind_of(file), how, lambda copy, file=file, how=how: harm(copy / str(steps[-1]) / file, how)))
    for how in HARMS:
        made.append(("manifest.json of every step", how, lambda copy, how=how: [
            harm(copy / str(step) / "manifest.json", how) for step in steps
        ]))  # fmt: skip
        made.append((f"{METRICS}, the part before the newest step alone", how,
                     lambda copy, how=how: harm(copy / METRICS, how, position(copy, steps[-1]) - 2)))  # fmt: skip
        made.append((f"{METRICS}, before every step", how, lambda copy, how=how: harm(copy / METRICS, how, 5)))
    return made


def position(folder: Path, step: int) -> int:
    """Bytes of the metric log when a step was saved."""
    rows = [
        line for line in (folder / METRICS).read_bytes().splitlines(keepends=True) if json.loads(line)["step"] < step
    ]
    return sum(map(len, rows))


def outcome(fit: Callable[[], tuple[str, Any]], reference: str) -> str:
    """What became of a training: never anything but the right bits or a typed error."""
    try:
        digest, resumed = fit()
    except CheckpointError as error:
        where = error.facts.get("file") or error.facts.get("checkpoint")
        return type(error).__name__ if where else f"{type(error).__name__} that doesn't say where"
    assert digest == reference, "WRONG BITS"
    return f"equal, from step {resumed}"


def test_harm_to_a_checkpoint_ends_in_the_same_bits_or_a_typed_error(
    request_: Request, inputs: Any, reference: str, stopped: Path
) -> None:
    every = cells(stopped, STOPPED)
    for number, (what, how, act) in enumerate(every):
        if number % 2 and "every" not in what:  # the other half in `make crash`, on the whole flow
            continue
        key = f"harmed-{number}"
        act(shutil.copytree(stopped, stopped.with_name(key)))

        def fit(key: str = key) -> tuple[str, Any]:
            artifact, job = toy.fitted(request_, inputs, key)
            return artifact.digest, job.notes["resumed_from"]

        found = outcome(fit, reference)
        lost = "every step" in what or (what.startswith(METRICS) and how == "delete")
        assert found == ("CheckpointCorrupt" if lost else f"equal, from step {STOPPED[0]}"), (what, how)


@pytest.mark.slow
def test_the_whole_matrix_on_the_whole_flow(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.train import train

    def run(store: Path) -> tuple[str, Any]:
        summary: Any = train("mnist", model="mlp", epochs=1, store=str(store), checkpoint_every=20, keep_best=0)
        return json.dumps(digests(summary)), summary["resumed_from"]

    reference, _ = run(tmp_path / "whole")
    with before_step(monkeypatch, 50, stop), pytest.raises(Stopped):
        run(tmp_path / "stopped")
    (folder,) = (tmp_path / "stopped" / "checkpoints" / "mnist").iterdir()
    assert steps_in(folder) == [20, 40]
    table: dict[str, dict[str, str]] = {}
    for what, how, act in cells(folder, (20, 40)):
        store = shutil.copytree(tmp_path / "stopped", tmp_path / "cell")
        act(store / "checkpoints" / "mnist" / folder.name)
        found = outcome(lambda store=store: run(store), reference)
        assert table.setdefault(what, {}).setdefault(how, found) == found, "files of one kind, different outcomes"
        shutil.rmtree(store)
    print(f"\n{'file':58} {'flip':22} {'cut':22} {'delete':22}")
    for what, row in table.items():
        print(f"{what:58} {row['flip']:22} {row.get('cut', '(is empty)'):22} {row['delete']:22}", flush=True)


# ------------------------------------------------------------------------------------------------------------- the disk


@pytest.fixture
def small_disk(request_: Request) -> Iterator[Path]:
    """A file system of 3 MB under the checkpoints of the toy dataset."""
    folder = request_.store / "checkpoints" / "toy"
    aside = folder.rename(folder.with_name("aside")) if folder.exists() else None
    folder.mkdir(parents=True)
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system can't be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
        if aside is not None:
            aside.rename(folder)


def fill(folder: Path) -> None:
    with (folder.parent / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):  # noqa: PT012
        while True:
            file.write(bytes(4096))


def forbid(folder: Path) -> None:
    if subprocess.run(["chattr", "+i", folder], capture_output=True).returncode:
        pytest.skip("a folder can't be made immutable here")


def allow(folder: Path) -> None:
    subprocess.run(["chattr", "-i", folder], check=True)


@pytest.mark.parametrize(
    ("break_it", "mend_it", "cause"),
    [
        (fill, lambda folder: (folder.parent / "filler").unlink(), "No space left|RESOURCE_EXHAUSTED"),
        (forbid, allow, "Operation not permitted"),
        (lambda folder: folder.rename(folder.with_name("elsewhere")),
         lambda folder: folder.with_name("elsewhere").rename(folder), "removed or replaced"),
        (lambda folder: (folder.rename(folder.with_name("elsewhere")), folder.mkdir()),
         lambda folder: (shutil.rmtree(folder), folder.with_name("elsewhere").rename(folder)), "removed or replaced"),
    ],
    ids=["full", "not writable", "vanished", "replaced"],
)  # fmt: skip
def test_a_save_that_fails_ends_the_run_at_once_and_the_next_run_resumes(
    request_: Request, inputs: Any, reference: str, small_disk: Path, monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[Path], None], mend_it: Callable[[Path], None], cause: str,
) -> None:  # fmt: skip
    folder = small_disk / "troubled"

    def trouble() -> None:
        while not (folder / "4").exists():
            time.sleep(0.01)
        break_it(folder)

    with before_step(monkeypatch, 6, trouble) as done, pytest.raises(CheckpointError) as caught:
        toy.fitted(request_, inputs, "troubled")
    mend_it(folder)
    assert re.search(cause, str(caught.value)), str(caught.value)
    assert str(folder) in str(caught.value)
    assert max(done) < STEPS - 1, "it went on to the end although nothing could be saved"
    assert steps_in(folder) == [4]
    assert not list(folder.glob(".saving*"))
    artifact, job = toy.fitted(request_, inputs, "troubled")
    assert job.notes["resumed_from"] == 4
    assert artifact.digest == reference


def test_a_disk_that_is_read_only_at_the_start(
    request_: Request, inputs: Any, reference: str, stopped: Path, small_disk: Path
) -> None:
    folder = Path(shutil.copytree(small_disk.with_name("aside") / stopped.name, small_disk / "read-only"))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CheckpointError, match="Read-only file system") as caught:
        toy.fitted(request_, inputs, "read-only")
    assert str(folder) in str(caught.value)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    artifact, job = toy.fitted(request_, inputs, "read-only")
    assert job.notes["resumed_from"] == STOPPED[-1]
    assert artifact.digest == reference


# ---------------------------------------------------------------------------------------------- what a checkpoint holds


def test_a_checkpoint_says_what_it_is_of(request_: Request, stopped: Path) -> None:
    from orbax.checkpoint import v1 as ocp

    custom: Any = ocp.metadata(str(stopped / "12"), checkpointable_name="state").custom_metadata
    meta = custom["meta"]
    assert meta["key"] == "stopped"
    assert meta["pipeline"]["step"] == 12
    assert meta["pipeline"]["identity"]["seed"] == 3
    assert meta["metrics"]["bytes"] == position(stopped, 12)
    assert set(meta["versions"]) == {"python", "jax", "jaxlib", "flax", "optax"}
    assert '"batch_size": 16' in json.dumps(meta["recipe"])
    assert any("dropout/rngs" in path and leaf["dtype"] == "uint32" for path, leaf in custom["leaves"].items())


@pytest.mark.parametrize(("every", "stay"), [(9, [18, 36, 45]), (None, [18, 45])])
def test_the_best_by_test_loss_stays_beside_the_newest(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch, every: int | None, stay: list[int]
) -> None:
    losses = iter((0.5, 0.1, 0.9, 0.3, 0.2))

    def evaluated(self: Any, carry: Any, at: int) -> dict[str, Any]:
        return {"step": at, "epoch": at // 9, "test_loss": next(losses)}

    five = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, epochs=5)))
    monkeypatch.setattr(training.Training, "_evaluate", evaluated)
    toy.fitted(replace(five, keep_best=1, checkpoint_every=every), inputs, f"best-{every}")
    assert steps_in(request_.store / "checkpoints" / "toy" / f"best-{every}") == stay


def test_a_checkpoint_is_saved_by_time_too_and_changes_nothing(
    request_: Request, inputs: Any, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    artifact, job = toy.fitted(replace(request_, checkpoint_every=None), inputs, "by-time")
    assert job.notes["checkpoints"]["saves"] == STEPS
    assert artifact.digest == reference


def test_what_may_change_without_a_new_training(
    request_: Request, inputs: Any, reference: str, stopped: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(request_.store, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("harmed-*")))
    other = replace(request_, store=moved, checkpoint_every=1, keep_best=3)
    artifact, job = toy.fitted(other, inputs, "stopped")
    assert job.notes["resumed_from"] == STOPPED[-1]
    assert artifact.digest == reference
    assert read_metrics(Store(moved).path(artifact) / METRICS)[-1]["step"] == STEPS - 1


# --------------------------------------------------------------------------------------------- a changed parameter (X8)


@pytest.mark.slow
def test_a_rerun_with_another_rate_and_a_rerun_of_that(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.train import train

    def run(**changes: Any) -> dict[str, Any]:
        summary: Any = train("mnist", model="mlp", epochs=1, store=str(tmp_path), checkpoint_every=20, **changes)
        return summary

    def fail() -> None:
        raise DataError("a cable was pulled")

    with before_step(monkeypatch, 50, fail), pytest.raises(DataError, match="cable"):
        run()
    with monkeypatch.context() as patch:
        patch.setattr("tasks.evaluate.predict_split", broken)
        with pytest.raises(DataError, match="evaluation is out of order"):
            run(learning_rate=0.0017)
    last = run(learning_rate=0.0017)
    assert states(last) == dict.fromkeys(("fetch", "convert", "validate", "feed", "fit"), "cached") | dict.fromkeys(
        ("evaluate", "promote"), "ran"
    )
    assert last["resumed_from"] is None  # the first run's checkpoints are of another rate
    manifest = json.loads((Path(last["artifacts"]["fit"]) / "manifest.json").read_text())
    assert {"float": (0.0017).hex()} in list(values(manifest["provenance"]["components"]["parameters"]["recipe"]))
    again = run()
    assert (states(again)["fit"], again["resumed_from"]) == ("resumed", 40)


def broken(*arguments: Any) -> Any:
    raise DataError("the evaluation is out of order")


def values(tree: Any) -> Iterator[Any]:
    yield tree
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from values(value)
