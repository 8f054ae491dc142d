"""One process of a training in several; started by `tasks/processes.py`.

python -m tasks.one_process REPORT < work.json

REPORT is the number of an open file that gets one line of JSON: the artifact, or the error.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from datasets.errors import GristmillError, TrainingError
from tasks.artifact import Artifact, Store
from tasks.fit import fit_model
from tasks.fitted import Fitted
from tasks.processes import error_json
from tasks.progress import LOG
from tasks.request import check
from tasks.server import PR_SET_PDEATHSIG
from tasks.stage import Job


def job_of(said: Mapping[str, Any]) -> Job:
    """The job of which `processes.as_json` told."""
    request = check(**said["request"])
    if said["fitted"] is not None:  # then the model sees another dataset than that of the file
        fitted = Fitted.from_json(said["fitted"])
        request = replace(request, dataset=fitted.dataset(request.dataset), fitted=fitted)
    return Job(said["stage"], said["key"], said["components"], request, Store(request.store), anew=said["anew"])


def end_with(parent: int) -> None:
    """Lets the kernel end this process when its parent ends, however it does; ends it now if that has happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def join(work: Mapping[str, Any]) -> None:
    """Meets the other processes; must come before JAX looks at its devices.

    Raises:
        TrainingError: The first isn't there in time. If another one isn't, JAX ends the process.
    """
    if work["process"] > 0:
        _wait_for(work["coordinator"], work["meet"])
    import jax

    here = work["coordinator"].startswith("127.0.0.1:")
    request = work["job"]["request"]
    first = work["process"] * request["devices"]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from us
    jax.distributed.initialize(
        work["coordinator"], request["processes"], work["process"],
        # Several processes of one host share its devices out; a process that is alone on its host has all.
        local_device_ids=range(first, first + request["devices"]) if here else None,
        coordinator_bind_address=work["coordinator"] if here else None,
        initialization_timeout=work["meet"], heartbeat_timeout_seconds=work["heartbeat"],
        shutdown_timeout_seconds=work["meet"],
    )  # fmt: skip


def _wait_for(coordinator: str, seconds: float) -> None:
    """Returns when somebody listens there: JAX would end this process without a word that could be reported."""
    host, port = coordinator.rsplit(":", 1)
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TrainingError(
                    "process 0 of the training isn't there", address=coordinator, got=error,
                    expected=f"within {seconds} s", cure="start all of them, with the same --coordinator",
                ) from error  # fmt: skip
            time.sleep(0.1)


def main(report: int, make_job: Callable[[Mapping[str, Any]], Job] = job_of) -> None:
    """Does this process's part of the work on standard input, and ends the process."""
    work = json.load(sys.stdin)
    end_with(work["parent"])
    LOG.addHandler(logging.StreamHandler(sys.stdout))
    LOG.propagate = False
    logging.getLogger("jax._src.distributed").setLevel(logging.ERROR)  # it warns of our no_proxy=127.0.0.1
    LOG.setLevel(logging.INFO if work["process"] == 0 else logging.WARNING)
    said: dict[str, Any] = {}
    try:
        join(work)
        inputs = {name: Artifact(**value) for name, value in work["inputs"].items()}
        said = {"artifact": fit_model(make_job(work["job"]), **inputs).to_json()}
    except GristmillError as error:
        said = {"error": error_json(error)}
    except BaseException:  # of another process's end, most often; the first to fail is the one that is reported
        traceback.print_exc()
    if said:
        os.write(report, json.dumps(said).encode() + b"\n")
    if "artifact" in said:
        import jax

        jax.distributed.shutdown()  # waits for the others
    # Whatever is registered to run at exit would wait for processes that are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if "artifact" in said else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
