"""Shared by all tests: no test touches the user's store or Prefect history, or waits for a server that isn't ours."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import absl.logging
import pytest

_HOME = tempfile.TemporaryDirectory(prefix="gristmill-test-")
os.environ["PREFECT_HOME"] = _HOME.name  # before anything imports Prefect
os.environ["GRISTMILL_STORE"] = str(Path(_HOME.name, "store"))
os.environ.pop("PREFECT_API_URL", None)
# What one test compiled no other must, in either worker or in what they start; a worker finds its parent's folder set
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(_HOME.name, "compiled")))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"

from flows import configure  # noqa: E402

configure()
# Its handler keeps the stderr of the moment, here pytest's capture, and closes it as soon as Prefect sets logging up
# under another one: pytest ends without a word. It never closes the process's own.
absl.logging.get_absl_handler().python_handler.setStream(sys.__stderr__)


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
