"""Work on many items at once, on what the configuration names; the results don't depend on which.

`[gristmill]` in prefect.toml, or the environment, which goes before it:

GRISTMILL_POOL     threads (default), processes, dask or ray
GRISTMILL_WORKERS  how many; the machine's cores, at most 8, unless said otherwise
GRISTMILL_CLUSTER  address of a running cluster of Dask or Ray; without one, a local one is started for the work
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from datasets.errors import ParameterError, TransientError, UnknownNameError
from tasks.cluster import Submit, on_dask, on_ray

T = TypeVar("T")
R = TypeVar("R")

CLUSTERS: dict[str, Callable[[int, str | None], AbstractContextManager[Submit]]] = {"dask": on_dask, "ray": on_ray}
POOLS = ("threads", "processes", *CLUSTERS)
MOST_WORKERS = 8  # unless asked for: more threads of one process wait for one another


@dataclass(frozen=True)
class Pool:
    """Where work is done.

    Attributes:
        kind: One of POOLS.
        workers: At most so many items at once, unless a running cluster has its own number.
        cluster: Address of a running cluster; None for one of our own.
    """

    kind: str
    workers: int
    cluster: str | None = None


def mapped(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`work` of each item, in the order of the items; the first error in that order ends it, and what hasn't begun.

    Raises:
        ParameterError: The configuration asks for what can't work, or for processes and `work` can't be sent to one.
        TransientError: A worker was killed.
    """
    pool = configured()
    workers = min(pool.workers, len(items))
    if len(items) < 2 or (workers == 1 and pool.cluster is None):
        yield from map(work, items)
        return
    if pool.kind != "threads":
        _check_can_be_sent(work, pool.kind)
    with _started(pool, workers) as submit:
        futures = [submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        except BrokenExecutor as error:
            raise TransientError("a worker process was killed", pool=pool.kind, reason=str(error)) from error
        finally:
            for future in futures:
                future.cancel()


def configured() -> Pool:
    """The pool that the environment asks for.

    Raises:
        ParameterError, UnknownNameError: It can't be what the environment says.
    """
    kind = os.environ.get("GRISTMILL_POOL", POOLS[0])
    workers, cluster = os.environ.get("GRISTMILL_WORKERS"), os.environ.get("GRISTMILL_CLUSTER") or None
    if kind not in POOLS:
        raise UnknownNameError.among("pool", kind, POOLS)
    if cluster and kind not in CLUSTERS:
        raise ParameterError(
            "only Dask and Ray have a cluster", parameter="GRISTMILL_CLUSTER", got=cluster, pool=kind,
            cure="GRISTMILL_POOL=dask",
        )  # fmt: skip
    if workers is None:
        return Pool(kind, min(os.cpu_count() or 1, MOST_WORKERS), cluster)
    if not workers.isdecimal() or int(workers) < 1:
        raise ParameterError(
            "the number of workers can't be this", parameter="GRISTMILL_WORKERS", got=workers,
            expected="a whole number above 0",
        )  # fmt: skip
    return Pool(kind, int(workers), cluster)


@contextmanager
def _started(pool: Pool, workers: int) -> Iterator[Submit]:
    if pool.kind in CLUSTERS:
        with CLUSTERS[pool.kind](workers, pool.cluster) as submit:
            yield submit
        return
    with _executor(pool.kind, workers) as executor:
        yield lambda work, item: executor.submit(work, item)


def _executor(kind: str, workers: int) -> Executor:
    if kind == "threads":
        return ThreadPoolExecutor(workers, thread_name_prefix="gristmill")
    # Not forked: JAX, Prefect and pyarrow run threads of their own by now
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _check_can_be_sent(work: Any, kind: str) -> None:  # noqa: ANN401
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterError(
            "the work can't be sent to another process", parameter="GRISTMILL_POOL", pool=kind, got=str(error),
            cure="a reader that is a function of a dataset file, or GRISTMILL_POOL=threads",
        ) from error  # fmt: skip
