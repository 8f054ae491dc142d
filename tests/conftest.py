"""Shared by all tests: no test touches the user's store or Prefect history, or waits for a server that isn't ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_HOME = tempfile.TemporaryDirectory(prefix="gristmill-test-")
os.environ["PREFECT_HOME"] = _HOME.name  # before anything imports Prefect
os.environ["GRISTMILL_STORE"] = str(Path(_HOME.name, "store"))
os.environ.pop("PREFECT_API_URL", None)

from flows import configure  # noqa: E402

configure()


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """A Prefect server for the session, in PREFECT_API_URL also for child processes."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from tasks.server import start_embedded, stop, wait_until_healthy

    process, api = start_embedded()
    before = os.environ["PREFECT_API_URL"]
    try:
        wait_until_healthy(process, api)
        os.environ["PREFECT_API_URL"] = api
        with temporary_settings({PREFECT_API_URL: api}):
            yield api
    finally:
        os.environ["PREFECT_API_URL"] = before
        stop(process)
