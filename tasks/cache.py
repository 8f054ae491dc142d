"""Prefect's side of the cache: the policy that looks a stage up by its content key, and which errors deserve a retry.

A record of the cache is a small JSON file, named by the key, that holds the handle of the artifact. Before Prefect may
use one, we read it ourselves: it must be JSON, and the artifact behind it must hold, byte by byte. Otherwise the record
is dropped, the log says why, and the stage runs.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, TaskRunFilter, TaskRunFilterName
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.runtime import flow_run
from prefect.serializers import JSONSerializer
from prefect.tasks import Task, exponential_backoff, task

from datasets.errors import ArtifactDamaged, GristmillError, TransientError
from tasks.artifact import Artifact, Store
from tasks.backlog import FLOW
from tasks.durable import remove
from tasks.progress import LOG

RETRIES = 3
FIRST_PAUSE = 2.0  # seconds, doubled each time, with jitter
FINAL_DISK_ERRORS = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EROFS,
    errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
PLAIN_JSON = JSONSerializer().model_dump(mode="json")


@dataclass(kw_only=True)
class ContentKey(CachePolicy):
    """The key that the stage computed, valid only while its record and its artifact hold.

    Attributes:
        key: Of the stage run.
        store: Where the artifact is.
        records: Folder of the cache records.
        lost: See `Stage`.
        dropped: Why the record didn't hold, once that is known.
    """

    key: str
    store: Store
    records: Path
    lost: Callable[[Store, Artifact], str | None]
    dropped: str | None = None

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
            self.dropped = reason
            LOG.warning("%s runs again: %s", task_ctx.task.name, reason)
            remove(record)  # or whatever has taken its place
        return self.key


def is_news(record: logging.LogRecord) -> bool:
    """False for Prefect's line on a cached stage of our flow, which names all of these in one line of its own.

    A line goes to the terminal and to the server, and so costs a tenth of what else a cached stage does.
    """
    ours = getattr(record, "flow_name", None) == FLOW
    return not (ours and record.getMessage().startswith("Finished in state Cached"))


logging.getLogger("prefect.task_runs").addFilter(is_news)


def as_task(name: str, run_name: str, policy: ContentKey, work: Callable[[], Any]) -> Task[[], Any]:
    """A function as a Prefect task: looked up by its content key, tried again after trouble that passes."""
    made = copy(_any_stage())
    made.name, made.task_run_name, made.fn = name, run_name, work
    made.result_storage = policy.records
    if made.cache_policy is not NO_CACHE:  # as a setting of Prefect's may have it
        made.cache_policy = policy
    return made


@cache
def _any_stage() -> Task[[], Any]:
    """What all stages have in common: Prefect makes a task out of its source code, which takes long."""

    def stage() -> None:
        pass

    return task(
        persist_result=True, result_storage=Path(), result_serializer="json", cache_result_in_memory=False,
        retries=RETRIES, retry_delay_seconds=exponential_backoff(backoff_factor=FIRST_PAUSE), retry_jitter_factor=1.0,
        retry_condition_fn=deserves_retry,
    )(stage)  # fmt: skip


def flaw(record: Path, store: Store, lost: Callable[[Store, Artifact], str | None]) -> str | None:
    """Why a record of the cache can't be used; None when it can."""
    try:
        outer = json.loads(record.read_bytes())
        # Prefect lets a record name what reads it back, to the last function: anything but plain JSON could run code
        if outer["metadata"]["serializer"] != PLAIN_JSON:
            return f"the cache record isn't plain JSON: {record}"
        artifact = Artifact(**json.loads(outer["result"]))
        if not all(isinstance(value, str) for value in artifact.to_json().values()):
            return f"the cache record holds no artifact: {record}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"the cache record is damaged ({type(error).__name__}): {record}"
    if artifact.key != record.name:
        return f"the cache record is that of another stage run: {record}"
    try:
        store.verify(artifact)
    except ArtifactDamaged as error:
        return f"cached {error.what}: {error.facts.get('file')}"
    except OSError as error:
        return f"cached artifact can't be read: {error}"
    return lost(store, artifact)


def recorded(record: Path) -> Artifact | None:
    """The artifact that a record of the cache names, whether it holds or not; None if it names none."""
    try:
        return Artifact(**json.loads(json.loads(record.read_bytes())["result"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def came_here_before(task_run_name: str) -> bool:
    """Whether an earlier try of this flow run, before a Retry, came to this stage already."""
    if flow_run.run_count <= 1:
        return False
    this_run = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(flow_run.id)]))
    this_stage = TaskRunFilter(name=TaskRunFilterName(any_=[task_run_name]))
    with get_client(sync_client=True) as client:
        return bool(client.read_task_runs(flow_run_filter=this_run, task_run_filter=this_stage))


def deserves_retry(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """True for trouble of the network or the disk; data errors fail the same way every time."""
    try:
        state.result(raise_on_failure=True)
    except TransientError:
        return True
    except GristmillError:  # RunTimeout, which is a TimeoutError, too
        return False
    except (ConnectionError, TimeoutError):
        return True
    except OSError as error:
        # Without a number it comes from a library that found a broken picture or archive, not from the disk
        return error.errno is not None and error.errno not in FINAL_DISK_ERRORS
    except Exception:
        return False
    return False
