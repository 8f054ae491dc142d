"""A training in several processes: starts those of this host, watches them, and ends all of them when one is gone.

Each process is a Python of its own (`tasks/one_process.py`) that joins the others with `jax.distributed`, reads its
share of every batch, and takes part in every step; process 0 writes for all. This process only waits. What ends one
process ends the training:

- One of this host died, or raised: this process sees it at once, and the others have GRACE seconds to say why they end.
- One of another host died, was cut off, or hangs: JAX's coordination service misses its heartbeats for HEARTBEAT
  seconds and ends every process; often the broken connection is noticed before. Each host's run then sees its own.

The next run goes on from the last checkpoint, with these processes or another number of them.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from datasets import errors
from datasets.errors import GristmillError, TrainingError
from tasks.artifact import Artifact
from tasks.progress import LOG
from tasks.request import CHECKOUT
from tasks.signals import StopSignal
from tasks.stage import Job

HEARTBEAT = 60
"""Seconds without a sign of life after which a process counts as dead."""
MEET = 300
"""Seconds that processes wait for one another at the start."""
GRACE = 5.0
_POLL = 0.05
_THREAD = "gristmill-process-"


@dataclass
class Member:
    """One process of this host.

    Attributes:
        process: Its number.
        child: It.
        said: What it reported before it ended, as JSON: an artifact or an error.
    """

    process: int
    child: subprocess.Popen[bytes]
    said: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether it ended without success."""
        return self.child.poll() not in (None, 0)


def train_together(job: Job, inputs: Mapping[str, Artifact], command: tuple[str, ...] | None = None) -> Artifact:
    """Trains in all processes that this run starts, and gives the weights that process 0 made.

    Args:
        job: Of stage `fit`.
        inputs: Of stage `fit`.
        command: Python's arguments that run one process; `-m tasks.one_process` if None.

    Raises:
        GristmillError: As a process raised it.
        TrainingError: A process died, or the training was stopped.
    """
    parallel = job.request.parallel
    coordinator = parallel.coordinator or f"127.0.0.1:{_free_port()}"
    numbers = range(parallel.processes) if parallel.process is None else (parallel.process,)
    work = {"job": as_json(job), "inputs": {name: artifact.to_json() for name, artifact in inputs.items()},
            "coordinator": coordinator, "heartbeat": HEARTBEAT, "meet": MEET, "parent": os.getpid()}  # fmt: skip
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    command = command or ("-m", "tasks.one_process")
    with StopSignal() as stop, _ended(lines) as members:
        for number in numbers:
            members.append(_start(command, {**work, "process": number}, lines))
        failed = _watch(members, stop, lines)
    if stop.received is not None and failed:
        raise TrainingError("the training was stopped", checkpoint=job.store.root / "checkpoints" / job.request.name)
    if failed:
        raise _cause(members, failed[0])
    return Artifact(**members[0].said[-1]["artifact"])


def _watch(members: list[Member], stop: StopSignal, lines: queue.SimpleQueue[str]) -> list[Member]:
    """Waits until all have ended, or one has failed and the others had their time; those that failed, in order."""
    told, deadline, failed = False, float("inf"), list[Member]()
    while True:
        running = [member for member in members if member.child.poll() is None]
        failed += sorted((member for member in members if member.failed and member not in failed), key=_likely_cause)
        _hand_on(lines)
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + GRACE
        if not running or time.monotonic() > deadline:
            return failed
        if stop.received is not None and not told:
            told = True
            for member in running:
                member.child.send_signal(signal.SIGTERM)
        time.sleep(_POLL)


def _likely_cause(member: Member) -> int:
    """Of processes that ended at one look: a signal ended the first, an error or JAX (SIGABRT) those that missed it."""
    status = member.child.returncode
    return 2 if status == -signal.SIGABRT else 1 if status > 0 else 0


@contextmanager
def _ended(lines: queue.SimpleQueue[str]) -> Iterator[list[Member]]:
    """Members, none of which is left at the end; what they said is read."""
    members: list[Member] = []
    try:
        yield members
    finally:
        for member in members:
            if member.child.poll() is None:
                member.child.kill()
            member.child.wait()
        for thread in threading.enumerate():
            if thread.name.startswith(_THREAD):
                thread.join(GRACE)  # what a process started itself may hold its end of the pipe for a moment
        _hand_on(lines)


def _cause(members: list[Member], dead: Member) -> GristmillError:
    """The error of the training: a typed one if a process raised one, else that of the first that died."""
    for member in members:
        for said in member.said:
            if "error" in said:
                return from_json(said["error"], member.process)
    status = dead.child.returncode
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    if status == -signal.SIGABRT:
        how += f": JAX ends a process when another was silent for {HEARTBEAT} s, or didn't come within {MEET} s"
    return TrainingError(
        "a process of the training died", process=dead.process, got=how,
        cure="its messages are above; the same command goes on from the last checkpoint, with any number of processes",
    )  # fmt: skip


def _start(command: tuple[str, ...], work: dict[str, Any], lines: queue.SimpleQueue[str]) -> Member:
    reading, writing = os.pipe()
    child = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, *command, str(writing)], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, pass_fds=(writing,), start_new_session=True,  # Ctrl-C comes through us
    )  # fmt: skip
    os.close(writing)
    member = Member(work["process"], child)
    assert child.stdin is not None  # noqa: S101 - a pipe
    with suppress(BrokenPipeError), child.stdin:  # it may have died by now, which is seen later
        child.stdin.write(json.dumps(work).encode())
    for what, target in {"says": _read_lines, "reports": _read_report}.items():
        threading.Thread(target=target, args=(member, reading, lines), daemon=True, name=f"{_THREAD}{what}").start()
    return member


def _read_lines(member: Member, reading: int, lines: queue.SimpleQueue[str]) -> None:
    assert member.child.stdout is not None  # noqa: S101 - a pipe
    for line in member.child.stdout:
        if not line.startswith(b"[Gloo] Rank"):  # how many others it has met
            lines.put(f"process {member.process}: {line.decode(errors='replace').rstrip()}")


def _read_report(member: Member, reading: int, lines: queue.SimpleQueue[str]) -> None:
    with os.fdopen(reading, "rb") as pipe:
        for line in pipe:
            member.said.append(json.loads(line))


def _hand_on(lines: queue.SimpleQueue[str]) -> None:
    """Logs what the processes said, in this thread: Prefect takes lines of the thread that runs the task."""
    while not lines.empty():
        LOG.info("%s", lines.get())


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def as_json(job: Job) -> dict[str, Any]:
    """A job as JSON, from which a process of its own makes an equal one; see `one_process.job_of`."""
    request = job.request
    start = request.warm_start
    parameters = {
        "dataset": request.name, "store": str(request.store), "raw": None if request.raw is None else str(request.raw),
        "checkpoint_every": request.checkpoint_every, "keep_best": request.keep_best,
        "warm_start": None if start is None else str(start.path),
        "warm_start_only": None if start is None or not start.only else ",".join(start.only),
        "devices": request.parallel.devices, "processes": request.parallel.processes, **request.changed,
    }  # fmt: skip
    return {
        "stage": job.stage, "key": job.key, "components": job.components, "anew": job.anew, "request": parameters,
        "fitted": None if request.fitted is None else request.fitted.to_json(),
    }  # fmt: skip


def error_json(error: GristmillError) -> dict[str, Any]:
    """An error as JSON; facts that aren't become text."""
    facts = {name: v if isinstance(v, bool | int | float | None) else str(v) for name, v in error.facts.items()}
    return {"kind": type(error).__name__, "what": error.what, "cure": error.cure, "facts": facts}


def from_json(said: Mapping[str, Any], process: int) -> GristmillError:
    """The error that a process raised."""
    kind = getattr(errors, said["kind"], TrainingError)
    return kind(said["what"], cure=said["cure"], **{**said["facts"], "process": process})
