"""Work on many items at once: threads unless the environment asks for processes; the results don't depend on which.

GRISTMILL_POOL     threads (default) or processes
GRISTMILL_WORKERS  how many; the machine's cores, at most 8, unless said otherwise
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

from datasets.errors import ParameterError, UnknownNameError

T = TypeVar("T")
R = TypeVar("R")

POOLS = ("threads", "processes")
MOST_WORKERS = 8  # unless asked for: more threads of one process wait for one another


def mapped(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`work` of each item, in the order of the items; the first error in that order ends it, and what hasn't begun.

    Raises:
        ParameterError: The environment asks for what can't work, or for processes and `work` can't be sent to one.
    """
    kind, workers = configured()
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(work, items)
        return
    if kind == "processes":
        _check_can_be_sent(work)
    with _executor(kind, workers) as executor:
        futures = [executor.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def configured() -> tuple[str, int]:
    """Kind of pool and number of workers.

    Raises:
        ParameterError, UnknownNameError: They can't be what the environment says.
    """
    kind, workers = os.environ.get("GRISTMILL_POOL", POOLS[0]), os.environ.get("GRISTMILL_WORKERS")
    if kind not in POOLS:
        raise UnknownNameError.among("pool", kind, POOLS)
    if workers is None:
        return kind, min(os.cpu_count() or 1, MOST_WORKERS)
    if not workers.isdecimal() or int(workers) < 1:
        raise ParameterError(
            "the number of workers can't be this", parameter="GRISTMILL_WORKERS", got=workers,
            expected="a whole number above 0",
        )  # fmt: skip
    return kind, int(workers)


def _executor(kind: str, workers: int) -> Executor:
    if kind == "threads":
        return ThreadPoolExecutor(workers, thread_name_prefix="gristmill")
    # Not forked: JAX, Prefect and pyarrow run threads of their own by now
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _check_can_be_sent(work: Any) -> None:  # noqa: ANN401
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterError(
            "the work can't be sent to another process", parameter="GRISTMILL_POOL", got=str(error),
            cure="a reader that is a function of a dataset file, or GRISTMILL_POOL=threads",
        ) from error  # fmt: skip
