"""Prefect's task runners for Dask and Ray as places to work: their cluster, one piece of work a message.

Each piece is a plain call on the cluster and not a Prefect task of its own: of 400 files, the server would otherwise
hear 400 stories. Workers of a running cluster need this checkout as their current directory, the same environment, and
the store at the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from datasets.errors import ParameterError, TransientError

HERE = "127.0.0.1"


class Future(Protocol):
    """What `submit` gives."""

    def result(self) -> Any:  # noqa: ANN401
        """Waits; raises what the work raised."""
        ...

    def cancel(self) -> Any:  # noqa: ANN401
        """Ends the work if it hasn't begun."""
        ...


Submit = Callable[[Callable[[Any], Any], Any], Future]
"""From work and its item to a future."""


@contextmanager
def on_dask(workers: int, address: str | None) -> Iterator[Submit]:
    """Work on the cluster of Prefect's DaskTaskRunner.

    Args:
        workers: Processes of a local cluster.
        address: Of a running cluster's scheduler, such as tcp://host:8786; a local cluster is started without one.

    Raises:
        ParameterError: `prefect-dask` isn't installed, or nothing answers at the address.
    """
    try:
        import distributed
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise _absent("dask", error) from error
    here = {"n_workers": workers, "threads_per_worker": 1, "host": HERE, "dashboard_address": "127.0.0.1:0"}
    runner = DaskTaskRunner(address=address) if address else DaskTaskRunner(cluster_kwargs=here)
    with runner:
        try:
            client = runner.client
        except OSError as error:
            raise _unreachable(address, error) from error

        def submit(work: Callable[[Any], Any], item: Any) -> Future:  # noqa: ANN401
            return _OnDask(client.submit(work, item, pure=False), distributed.KilledWorker)

        yield submit


@contextmanager
def on_ray(workers: int, address: str | None) -> Iterator[Submit]:
    """Work on the cluster of Prefect's RayTaskRunner.

    Args:
        workers: Of a local cluster.
        address: Of a running cluster, such as ray://host:10001; a local one is started without one.

    Raises:
        ParameterError: `prefect-ray` isn't installed, or nothing answers at the address.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports] - an extra of its own
        from prefect_ray import RayTaskRunner  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _absent("ray", error) from error
    here = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False, "_node_ip_address": HERE}
    runner = RayTaskRunner(address=address) if address else RayTaskRunner(init_kwargs=here)
    with ExitStack() as stack:
        try:
            stack.enter_context(runner)
        except OSError as error:
            raise _unreachable(address, error) from error
        remote = ray.remote(_called)
        yield lambda work, item: _OnRay(ray, remote.remote(work, item))


@dataclass(frozen=True)
class _OnDask:
    future: Any
    killed: type[Exception]

    def result(self) -> Any:  # noqa: ANN401
        try:
            return self.future.result()
        except self.killed as error:
            raise TransientError("workers of the cluster were killed", pool="dask", reason=str(error)) from error

    def cancel(self) -> None:
        self.future.cancel()


@dataclass(frozen=True)
class _OnRay:
    ray: Any
    reference: Any

    def result(self) -> Any:  # noqa: ANN401
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except self.ray.exceptions.RayError as error:
            raise TransientError("workers of the cluster were killed", pool="ray", reason=str(error)) from error

    def cancel(self) -> None:
        self.ray.cancel(self.reference)


def _called(work: Callable[[Any], Any], item: Any) -> Any:  # noqa: ANN401
    return work(item)


def _absent(kind: str, error: ImportError) -> ParameterError:
    return ParameterError(
        f"the task runner for {kind} isn't installed", parameter="GRISTMILL_POOL", got=str(error),
        cure=f"pip install prefect-{kind}, or another pool",
    )  # fmt: skip


def _unreachable(address: str | None, error: Exception) -> ParameterError:
    return ParameterError("no cluster answers", parameter="GRISTMILL_CLUSTER", got=address, reason=str(error))
