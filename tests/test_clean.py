"""`python -m flows.clean` as a command, and as the flow of a deployment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.exceptions import ParameterTypeError

from flows.clean import clean

ROOT = Path(__file__).parent.parent


def call(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.clean", "--json", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_last_line_is_json(tmp_path: Path) -> None:
    done = call("--dry-run", "--store", str(tmp_path / "store"), "--days", "7")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {"store": str(tmp_path / "store"), "dry_run": True, "bytes": 0, "removed": []}


def test_a_wrong_limit_is_refused(tmp_path: Path) -> None:
    done = call("--store", str(tmp_path), "--keep", "0")
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1])["error"] == "ParameterError"


def test_the_flow_does_the_same_and_shows_what_went(prefect_server: str, tmp_path: Path) -> None:
    old = tmp_path / "store" / "logs" / "mnist" / "old"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * 10)
    os.utime(old, (0, 0))
    report = clean(days=1.0, store=str(tmp_path / "store"))
    assert report == {"store": str(tmp_path / "store"), "dry_run": False, "bytes": 10}
    assert not old.exists()
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["store-clean"])))
    newest = max(found, key=lambda one: str(one.created))
    assert newest.description == f"gone from {tmp_path / 'store'}: 1, 10 bytes"
    assert str(old) in str(newest.data)


def test_the_form_explains_every_parameter_and_refuses_nonsense() -> None:
    assert all(field.get("description") for field in clean.parameters.properties.values())
    wrong: list[dict[str, Any]] = [
        {"days": float("nan")},
        {"days": -1.0},
        {"keep": 0},
        {"keep": True},
        {"most_gb": "x"},
    ]
    for given in wrong:
        with pytest.raises(ParameterTypeError):
            clean.validate_parameters(given)
