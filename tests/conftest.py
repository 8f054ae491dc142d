"""Shared by all tests: no test touches the user's store or Prefect history, or waits for a server that isn't ours."""

from __future__ import annotations

import logging
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
    from tasks.server import embedded

    before = os.environ["PREFECT_API_URL"]
    with embedded() as api:
        os.environ["PREFECT_API_URL"] = api
        yield api
        os.environ["PREFECT_API_URL"] = before


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Our log lines; Prefect's logging may have cut our logger off from the root, where pytest listens."""
    logger = logging.getLogger("gristmill")
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "gristmill")
    yield caplog
    logger.removeHandler(caplog.handler)
    logger.propagate = before
