"""One process of several; test_processes starts real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import toy

from tasks import one_process
from tasks.processes import from_json


def run(work: dict[str, Any], code: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, report and output of a process with this work."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as report:
        done = subprocess.run(
            [sys.executable, "-c", code, str(writing)], input=json.dumps(work), text=True, capture_output=True,
            pass_fds=(writing,), cwd=toy.ROOT, timeout=120,
        )  # fmt: skip
        os.close(writing)
        said = report.read()
    return done.returncode, json.loads(said or "{}"), done.stdout + done.stderr


def test_those_who_never_meet_say_so_in_time() -> None:
    work = {
        "process": 1, "coordinator": "127.0.0.1:1", "meet": 1, "heartbeat": 10, "inputs": {}, "parent": os.getpid(),
        "job": {"request": {"devices": 1, "processes": 2}},
    }  # fmt: skip
    status, said, _ = run(work, "import sys\nfrom tasks.one_process import main\nmain(int(sys.argv[1]))")
    error = from_json(said["error"], 1)
    assert (status, type(error).__name__) == (1, "TrainingError")
    assert "isn't there" in error.what
    assert error.facts["address"] == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("body", "kind"),
    [("raise SchemaError('a row is bad', row=3)", "SchemaError"), ("raise ValueError('x' * 9)", None),
     ("sys.exit(0)", None)],
)  # fmt: skip
def test_how_it_ends_is_reported_and_never_a_success_without_a_result(body: str, kind: str | None) -> None:
    code = (
        "import sys\nfrom datasets.errors import SchemaError\nfrom tasks import one_process\n"
        f"one_process.join = lambda work: None\ndef job(said):\n    {body}\n"
        "one_process.main(int(sys.argv[1]), job)"
    )
    status, said, output = run({"process": 0, "inputs": {}, "job": {}, "parent": os.getpid()}, code)
    assert status == 1
    assert (said["error"]["kind"] if said else None) == kind
    assert ("xxxxxxxxx" in output) == ("ValueError" in body)


def test_its_default_job_is_the_request_again() -> None:
    assert one_process.main.__defaults__ == (one_process.job_of,)
