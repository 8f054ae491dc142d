"""A night in which nothing has changed, as a command: ours against the same chain of stages in DVC and in Metaflow.

Every stage of DVC's copies the file of the stage before, of about the size of our shards, so that there is as much to
look at. DVC trusts the time and size of files that it hashed before; ours reads and hashes every byte. Metaflow keeps
no results between runs, so its steps run again: here they do nothing, which is the least that it can take.
GRISTMILL_PEERS names the Python of an environment with `requirements-peers.txt`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tasks.benchmark import Measure, paired
from tasks.benchmarks.overhead import REQUEST, at_home, cached_command, first_run
from tasks.server import embedded

ROUNDS = 5
STAGES = 7
SIZE = 8_000_000  # bytes of a stage's file
WHAT = "nothing changed, as a command"


def run(rounds: int = ROUNDS) -> list[Measure]:
    """Ours with a server that runs and with its own, each against every peer; about three minutes."""
    with tempfile.TemporaryDirectory(prefix="gristmill-rerun-") as folder, at_home(Path(folder)):
        request = {**REQUEST, "store": f"{folder}/store"}
        with embedded() as api:
            first_run(request)
            commands: dict[str, Callable[[], float]] = {
                "ours": lambda: cached_command(request, {"PREFECT_API_URL": api}),
                "ours, own server": lambda: cached_command(request, {}),
                **peers(Path(folder)),
            }
            taken: dict[str, list[float]] = {name: [] for name in commands}
            for number in range(rounds):
                for name in [*commands][number % len(commands) :] + [*commands][: number % len(commands)]:
                    taken[name].append(commands[name]())
    return report(taken)


def report(taken: dict[str, list[float]]) -> list[Measure]:
    """Seconds; ratios are ours / theirs, so above 1 is slower than they are."""
    measures = []
    for peer in ("dvc repro", "Metaflow, seven empty steps"):
        for name, server in (("ours", "a server is running"), ("ours, own server", "its own server started first")):
            if peer in taken:
                measures.append(paired(f"{WHAT}, {server}", "s", taken[name], taken[peer], against=peer))
        if peer not in taken:
            measures.append(Measure(f"{WHAT}: {peer}", 0.0, "not installed: GRISTMILL_PEERS"))
    return measures


def peers(folder: Path) -> dict[str, Callable[[], float]]:
    """A command that reruns each peer's chain, for those that are installed; each chain has run once."""
    python = os.environ.get("GRISTMILL_PEERS")
    found: dict[str, Callable[[], float]] = {}
    if python and _has(python, "dvc"):
        found["dvc repro"] = dvc(python, folder / "dvc")
    if python and _has(python, "metaflow"):
        found["Metaflow, seven empty steps"] = metaflow(python, folder / "metaflow")
    return found


def dvc(python: str, folder: Path) -> Callable[[], float]:
    """A chain of copies, made once."""
    folder.mkdir()
    names = ["raw", *(f"stage{number}" for number in range(1, STAGES + 1))]
    (folder / names[0]).write_bytes(os.urandom(SIZE))
    stages = [
        f"  {new}: {{cmd: cp {old} {new}, deps: [{old}], outs: [{new}]}}" for old, new in itertools.pairwise(names)
    ]
    (folder / "dvc.yaml").write_text("\n".join(["stages:", *stages, ""]))
    _timed([python, "-m", "dvc", "init", "--no-scm", "--quiet"], folder)
    _timed([python, "-m", "dvc", "config", "core.analytics", "false"], folder)
    _timed([python, "-m", "dvc", "repro", "--quiet"], folder)
    return lambda: _timed([python, "-m", "dvc", "repro", "--quiet"], folder)


def metaflow(python: str, folder: Path) -> Callable[[], float]:
    """A flow of steps that do nothing."""
    folder.mkdir()
    names = ["start", *(f"step{number}" for number in range(2, STAGES)), "end"]
    steps = [
        f"    @step\n    def {name}(self):\n        {f'self.next(self.{after})' if after else 'pass'}\n"
        for name, after in zip(names, [*names[1:], ""], strict=True)
    ]
    text = ["from metaflow import FlowSpec, step", "", "class Night(FlowSpec):", *steps, "Night()", ""]
    (folder / "night.py").write_text("\n".join(text))
    places = {"METAFLOW_DATASTORE_SYSROOT_LOCAL": str(folder), "METAFLOW_HOME": str(folder), "USERNAME": "gristmill"}
    command = [python, "night.py", "--no-pylint", "--quiet", "run"]
    _timed(command, folder, places)
    return lambda: _timed(command, folder, places)


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-EP", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0  # noqa: S603


def _timed(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> float:
    started = time.perf_counter()
    subprocess.run(  # noqa: S603 - our own command
        command, cwd=folder, env={**os.environ, **(environment or {})}, check=True, capture_output=True
    )
    return time.perf_counter() - started
