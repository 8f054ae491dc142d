"""How long from raw MNIST files to 97 % and to 99 % test accuracy: ours against scripts that people write.

Each is one process, timed from its start, imports and compilation included; all have the same layers, batch and rate,
and look at the test digits every `EVERY` steps. Ours also checks, converts and validates the raw files, and keeps
checkpoints. Rounds are paired, in a new order each. Two environment variables say where things are:

GRISTMILL_MNIST   folder of the four raw files (the bundled sample has no published test split)
GRISTMILL_PEERS   Python of an environment with `requirements-peers.txt`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datasets.errors import TrainingError
from tasks.benchmark import Measure, paired
from tasks.request import CHECKOUT

TARGETS = (0.97, 0.99)
ROUNDS, EVERY, BATCH, LIMIT = 3, 50, 128, 900
SCRIPTS = {"PyTorch": "torch_mnist", "Keras": "keras_mnist", "JAX, Grain and NNX as in tutorials": "jax_mnist"}
PEERS = CHECKOUT / "tasks" / "peers"

Times = dict[float, float]
"""Seconds to each target that was reached."""


def run(rounds: int = ROUNDS) -> list[Measure]:
    """All measures; about three minutes a round on two idle cores."""
    folder = os.environ.get("GRISTMILL_MNIST")
    if not folder:
        return [Measure("seconds to 97 % and 99 %", 0.0, "not measured: GRISTMILL_MNIST isn't set")]
    runs: dict[str, list[Times | str]] = {name: [] for name in ("ours", *SCRIPTS)}
    for number in range(rounds):
        names = list(runs)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            runs[name].append(ours(folder) if name == "ours" else peer(SCRIPTS[name], folder))
    return [measure for target in TARGETS for measure in compared(target, runs)]


def compared(target: float, runs: dict[str, list[Times | str]]) -> list[Measure]:
    """Our seconds to a target, and how many times theirs they are."""
    what = f"seconds to {target:.0%}"
    mine = [one[target] for one in runs["ours"] if isinstance(one, dict) and target in one]
    if len(mine) < len(runs["ours"]):
        return [Measure(what, 0.0, f"not reached in {len(runs['ours']) - len(mine)} of {len(runs['ours'])} rounds")]
    found = [paired(what, "s", mine)]
    for name in SCRIPTS:
        reasons = {one for one in runs[name] if isinstance(one, str)}
        theirs = [one[target] for one in runs[name] if isinstance(one, dict) and target in one]
        if reasons:
            found.append(Measure(f"{what} of {name}", 0.0, f"not installed: {min(reasons)}"))
        elif len(theirs) < len(mine):
            found.append(Measure(f"{what} of {name}", 0.0, f"not reached in {len(mine) - len(theirs)} rounds"))
        else:
            found.append(paired(what, "s", mine, theirs, against=name))
    return found


def command(folder: str, store: str) -> list[str]:
    """The flow that is measured."""
    options = [
        f"--raw={folder}", f"--store={store}", "--model=cnn", f"--batch-size={BATCH}", "--epochs=6",
        f"--set=evaluate_every={EVERY}",
    ]  # fmt: skip
    return [sys.executable, "-m", "flows.train", "mnist_full", *options]


def ours(folder: str) -> Times:
    """The flow as a command, in an empty store.

    Raises:
        TrainingError: It failed.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-accuracy-") as store:

        def accuracies() -> Iterator[float]:
            for log in Path(store).glob("checkpoints/*/*/metrics.jsonl"):
                for line in log.read_text().splitlines():
                    with _half_a_line():
                        yield json.loads(line).get("test_accuracy") or 0.0

        began, said = time.perf_counter(), Path(store, "said")
        with said.open("wb") as output:
            process = subprocess.Popen(command(folder, store), cwd=CHECKOUT, stdout=output, stderr=output)  # noqa: S603
        times: Times = {}
        try:
            while process.poll() is None and not _done(times, began):
                _note(times, max(accuracies(), default=0.0), began)
                time.sleep(0.05)
            if process.poll():
                raise TrainingError("the flow failed", status=process.poll(), said=said.read_text()[-500:])
        finally:
            process.terminate()
            process.wait()
        return times


def peer(script: str, folder: str) -> Times | str:
    """A script with the interpreter that has its libraries; or why it can't be measured."""
    python = sys.executable if script == "jax_mnist" else os.environ.get("GRISTMILL_PEERS")
    if not python:
        return "GRISTMILL_PEERS isn't set"
    began, times = time.perf_counter(), Times()
    arguments = [python, "-EP", str(PEERS / f"{script}.py"), folder, str(EVERY), str(BATCH)]
    with subprocess.Popen(arguments, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        end = threading.Timer(LIMIT, process.kill)
        end.start()
        try:
            for line in process.stdout or ():
                said = json.loads(line) if line.startswith("{") else {}
                if "missing" in said:
                    return str(said["missing"])
                _note(times, said.get("accuracy", 0.0), began)
                if _done(times, began):
                    break
        finally:
            end.cancel()
            process.kill()
    return times


def _note(times: Times, accuracy: float, began: float) -> None:
    for target in TARGETS:
        if accuracy >= target:
            times.setdefault(target, time.perf_counter() - began)


def _done(times: Times, began: float) -> bool:
    return len(times) == len(TARGETS) or time.perf_counter() - began > LIMIT


@contextmanager
def _half_a_line() -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError:  # it is being written
        return
