"""A Grain dataset as an iterator that ends in one of two ways: all elements were given, or an error says what happened.

Grain by itself waits for ever on a worker that left with status 0, takes a StopIteration from a transform for the end
of the data, drops elements that a transform turned into None, and leaves workers behind when the program is killed.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import queue
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grain
import numpy as np
from absl import flags

from datasets.errors import GristmillError, ParameterError, PipelineError
from datasets.schema import Columns, check_float, check_int
from tasks.feed_worker import remove_shared, start_worker

_POLL = 1.0  # seconds between looks at the workers while a batch is awaited
_GRACE = 3.0  # seconds that workers get to end by themselves


class Batches(Iterator[Columns]):
    """The elements of a Grain dataset in order, closed at the end of a `with` block, by an error, or by `close`.

    Args:
        dataset: Its elements are dicts of arrays.
        threads: That make elements ahead of time in this process; 0 makes each when it is asked for.
        prefetch: Most elements that wait, ready, in this process or in each worker; at least `threads`, if any.
        workers: Processes that make elements, at low priority. They pay only for more than about 2 ms of Python an
            element; each needs seconds to start, and the program's `if __name__ == "__main__"` guard.
        timeout: Seconds to wait for one element of a worker.
        where: Gives, for the number of an element, facts for error messages.
        several: Gives, for the number of an element, the same elements as `dataset` from that one on, as many as are
            best made at once. It is asked instead of `dataset` where there are neither threads nor workers.

    Raises:
        ParameterError: A value is out of range, or `prefetch` is set with nobody to do it.
    """

    def __init__(
        self, dataset: grain.MapDataset, *, threads: int = 0, prefetch: int = 0, workers: int = 0,
        timeout: float = 600.0, where: Callable[[int], dict[str, Any]] = lambda index: {"element": index},
        several: Callable[[int], Sequence[Columns | None]] | None = None,
    ) -> None:  # fmt: skip
        for name, value in {"threads": threads, "prefetch": prefetch, "workers": workers}.items():
            check_int(name, value, 0)
        check_float("timeout", timeout, 0, float("inf"))
        if prefetch and not threads and not workers:
            raise ParameterError("prefetch needs threads or workers to do it", parameter="prefetch", got=prefetch)
        self._length, self._given = len(dataset), 0
        self._where, self._timeout = where, timeout
        self._caller: ThreadPoolExecutor | None = None
        self._closed = False
        if not threads and not workers:  # Grain's iterator costs as much as gathering a small batch
            self._iterator: Any = _InTurn(several or (lambda index: [dataset[index]]))
            return
        buffer = max(threads, prefetch) if threads else 0
        stream = dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=buffer))
        if workers:
            if not flags.FLAGS.is_parsed():  # Grain reads them when a worker starts, and only absl.app parses them
                flags.FLAGS.mark_as_parsed()
            options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=max(1, prefetch))
            self._shared = f"gristmill-{secrets.token_hex(6)}-"
            stream = stream.mp_prefetch(options, worker_init_fn=functools.partial(start_worker, shared=self._shared))
            self._caller = ThreadPoolExecutor(1, thread_name_prefix="gristmill-feed")
        self._iterator = iter(stream)

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self._length

    def __next__(self) -> Columns:
        """Gives the next element.

        Raises:
            StopIteration: All elements were given.
            PipelineError: The stream ended early, a worker died or hangs, or a transform failed.
            GristmillError: As the source or a transform raised it.
        """
        if self._given == self._length:
            self.close()
            raise StopIteration
        if self._closed:
            raise PipelineError("the batches are closed", given=self._given, expected=self._length)
        try:
            element = self._next()
        except GristmillError as error:
            self.close()
            if not (where := self._where(self._given)).keys() & error.facts.keys():
                error.facts.update(where)
            raise
        except (StopIteration, _Ended) as error:
            self.close()
            raise PipelineError(
                "the stream of batches ended early", given=self._given, expected=self._length,
                **self._where(self._given),
                cure="a transform that raises StopIteration or returns None loses data; raise an error, or drop "
                "records when the data is converted",
            ) from error  # fmt: skip
        except (Exception, SystemExit) as error:
            self.close()
            cause = f"{type(error).__name__}: {error}"
            raise PipelineError("a batch can't be made", cause=cause, **self._where(self._given)) from error
        except BaseException:
            self.close()
            raise
        self._given += 1
        return element

    def close(self) -> None:
        """Ends threads and workers; may be called twice."""
        if self._closed:
            return
        self._closed = True
        everyone = _started(self._iterator, wait=True)
        _end_workers(everyone)
        for started in everyone:
            worker = _worker_of(started)
            if worker.status == 0:
                # Grain's close would wait for its thread, which waits for this worker; without one the thread ends.
                # If the worker left because its data is at an end, the thread does the same at this moment.
                with contextlib.suppress(AttributeError):
                    worker.iterator.close()
            started.close()
            # Closing threw away whatever our own thread may still wait for: give it an end to find.
            with contextlib.suppress(AttributeError, queue.Full):
                started._buffer.put_nowait((None, None, _Ended()))
        self._iterator.close()
        self._iterator = None
        if self._caller:
            self._caller.shutdown(wait=True, cancel_futures=True)
            gc.collect()  # Grain's iterators lie in cycles, and what they hold in shared memory goes with them
            remove_shared(self._shared)

    def _next(self) -> Columns:
        if self._caller is None:
            return next(self._iterator)
        # In a thread of its own, because Grain's next() never returns once a worker has left with status 0.
        try:
            element = self._await(self._caller.submit(_next_or_end, self._iterator))
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they hold batches, and those hold shared memory
            error.__traceback__ = None  # of our own waiting thread; a worker's is in the message
            raise
        # What a worker sends lies in shared memory that goes away with its array: a plain copy may outlive it.
        return {name: np.array(value, subok=False) for name, value in element.items()}

    def _await(self, awaited: Future[Columns]) -> Columns:
        deadline, gone = time.monotonic() + self._timeout, False
        while True:
            try:
                return awaited.result(_POLL)
            except NotYet:
                if awaited.done():  # it raised a TimeoutError of its own
                    return awaited.result()
            status = _left_with(self._iterator)
            if status is not None and gone:  # seen twice: not just one that is at its end and being put away
                raise PipelineError("a worker ended before its last batch", status=status)
            gone = status is not None
            if time.monotonic() > deadline:
                raise PipelineError("no batch came from the workers", waited=f"{self._timeout} s")


class _InTurn:
    """Elements that are made when they are asked for."""

    def __init__(self, several: Callable[[int], Sequence[Columns | None]]) -> None:
        self._several, self._index = several, 0
        self._made: collections.deque[Columns | None] = collections.deque()

    def __next__(self) -> Columns:
        if not self._made:
            self._made.extend(self._several(self._index))
        element = self._made.popleft()
        if element is None:  # what Grain's own iterator skips
            raise _Ended
        self._index += 1
        return element

    def close(self) -> None:
        """There is nothing to close."""


class _Ended(Exception):  # noqa: N818 - a Future can't carry StopIteration
    """The iterator is at its end."""


def _next_or_end(iterator: Iterator[Columns]) -> Columns:
    try:
        return next(iterator)
    except StopIteration:
        raise _Ended from None


@dataclass(frozen=True)
class _Worker:
    """One worker: Grain's iterator over what it sends, and its exit status once it is gone."""

    iterator: Any
    status: int | None


# What follows uses private names of the pinned Grain, because it offers no way to see its workers, doesn't close those
# that were started but not yet asked, and doesn't see one that left with status 0. The tests on faults fail if these
# names change.


def _started(iterator: Any, *, wait: bool = False) -> list[Any]:  # noqa: ANN401
    """The iterator of every worker that was started, asked or not."""
    in_use = [it for it in getattr(iterator, "_iterators_in_use", []) if it is not None]
    starting = list(getattr(getattr(iterator, "_prefetch_ds_iter", None), "_buffer", []))
    ready = [future for future in starting if (wait and not future.cancel()) or future.done()]
    return in_use + [f.result() for f in ready if not f.cancelled() and not f.exception()]


def _worker_of(started: Any) -> _Worker:  # noqa: ANN401
    iterator = getattr(started, "_maybe_nonnative_parent", started)
    process = getattr(iterator, "_prefetch_process", None)
    return _Worker(iterator, None if process is None else process.exitcode)


def _end_workers(everyone: list[Any]) -> None:
    """Ends workers, at once where a few seconds don't do: at low priority on a busy machine one may not get to it.

    Grain would wait 25 s for each, and then not for its end. What a killed worker had in shared memory has a name that
    is known here.
    """
    workers = [_worker_of(started).iterator for started in everyone]
    processes = [(w, w._prefetch_process) for w in workers if getattr(w, "_prefetch_process", None) is not None]
    for worker, _ in processes:
        worker._prefetch_should_stop.set()
    deadline = time.monotonic() + _GRACE
    for _, process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _left_with(iterator: Any) -> int | None:  # noqa: ANN401
    """Exit status of a worker that is gone, if one is."""
    statuses = (_worker_of(started).status for started in _started(iterator))
    return next((status for status in statuses if status is not None), None)
