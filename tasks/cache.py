"""Prefect's side of the cache: the policy that looks a stage up by its content key, and which errors deserve a retry.

A record of the cache is a small JSON file, named by the key, that holds the handle of the artifact. Before Prefect may
use one, we read it ourselves: it must be JSON, and the artifact behind it must hold, byte by byte. Otherwise the record
is dropped, the log says why, and the stage runs.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.tasks import Task

from datasets.errors import ArtifactDamaged, GristmillError, TransientError
from tasks.artifact import Artifact, Store
from tasks.progress import LOG

RETRIES = 3
FIRST_PAUSE = 2.0  # seconds, doubled each time, with jitter
FINAL_DISK_ERRORS = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EROFS}


@dataclass(kw_only=True)
class ContentKey(CachePolicy):
    """The key that the stage computed, valid only while its record and its artifact hold.

    Attributes:
        key: Of the stage run.
        store: Where the artifact is.
        records: Folder of the cache records.
        lost: See `Stage`.
    """

    key: str
    store: Store
    records: Path
    lost: Callable[[Store, Artifact], str | None]

    def compute_key(
        self,
        task_ctx: TaskRunContext,
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any],
        **kwargs: Any,  # noqa: ANN401
    ) -> str:
        """The key, after a record that doesn't hold is dropped."""
        record = self.records / self.key
        if record.exists() and (reason := flaw(record, self.store, self.lost)):
            LOG.warning("%s runs again: %s", task_ctx.task.name, reason)
            record.unlink(missing_ok=True)
        return self.key


def flaw(record: Path, store: Store, lost: Callable[[Store, Artifact], str | None]) -> str | None:
    """Why a record of the cache can't be used; None when it can."""
    try:
        # Prefect lets a record name the serializer that reads it back: anything but JSON could run code
        outer = json.loads(record.read_bytes())
        if outer["metadata"]["serializer"]["type"] != "json":
            return f"the cache record isn't JSON: {record}"
        value = json.loads(outer["result"])
        artifact = Artifact(**value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"the cache record is damaged ({type(error).__name__}): {record}"
    try:
        store.verify(artifact)
    except ArtifactDamaged as error:
        return f"cached {error.what}: {error.facts.get('file')}"
    return lost(store, artifact)


def deserves_retry(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """True for trouble of the network or the disk; data errors fail the same way every time."""
    try:
        state.result(raise_on_failure=True)
    except (TransientError, ConnectionError, TimeoutError):
        return True
    except GristmillError:
        return False
    except OSError as error:
        return error.errno not in FINAL_DISK_ERRORS
    except Exception:
        return False
    return False
