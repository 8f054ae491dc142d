"""Conversion and validation on a local cluster of Dask with two workers give what one thread gives, byte for byte."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_parts as parts
import toy
from test_pool import refuse, square  # a module that a worker imports quickly

from datasets.errors import ParameterError, SchemaError
from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.pool import mapped
from tasks.validate import REPORT, validate_records

pytest.importorskip("prefect_dask")


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    """Address of a running cluster."""
    from distributed import LocalCluster

    local: Any = LocalCluster
    with local(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def chosen(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_POOL", "dask")
    monkeypatch.setenv("GRISTMILL_CLUSTER", dask)


@pytest.mark.usefixtures("chosen")
def test_results_come_in_the_order_of_the_items_from_other_processes() -> None:
    results = list(mapped(square, range(20)))
    assert [result for result, _ in results] == [n * n for n in range(20)]
    assert os.getpid() not in {pid for _, pid in results}


@pytest.mark.usefixtures("chosen")
def test_an_error_is_the_one_that_was_raised_with_all_that_it_says() -> None:
    with pytest.raises(SchemaError) as caught:
        list(mapped(refuse, range(3)))
    assert (caught.value.facts["row"], caught.value.cure) == (1, "mend it")


def test_two_workers_give_the_shards_and_the_report_of_one_thread(
    tmp_path: Path, dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        parts.write_file(tmp_path / "raw", number)
    found = {}
    for place, cluster in (("thread", ""), ("dask", dask)):
        monkeypatch.setenv("GRISTMILL_WORKERS", "1")
        monkeypatch.setenv("GRISTMILL_POOL", "dask" if cluster else "threads")
        monkeypatch.setenv("GRISTMILL_CLUSTER", cluster)
        records, job = parts.convert(tmp_path / place, tmp_path / "raw", parts.dataset())
        report = validate_records(toy.job(job.request, "validate"), records)
        found[place] = (bytes_of(tmp_path / place, records), report_of(tmp_path / place, report), report.digest)
    assert found["thread"] == found["dask"]
    assert len(found["dask"][0]) > 10


def test_a_cluster_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import config

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("GRISTMILL_POOL", "dask")
    monkeypatch.setenv("GRISTMILL_CLUSTER", address)
    monkeypatch.setitem(config["distributed"]["comm"]["timeouts"], "connect", "500ms")
    with pytest.raises(ParameterError, match="no cluster answers") as caught:
        list(mapped(square, range(3)))
    assert caught.value.facts["got"] == address


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_runner_that_is_not_installed_says_how_to_get_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (f"prefect_{kind}", f"prefect_{kind}.task_runners"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("GRISTMILL_POOL", kind)
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    with pytest.raises(ParameterError) as caught:
        list(mapped(square, range(3)))
    assert f"prefect-{kind}" in str(caught.value.cure)


@pytest.mark.slow
def test_ray_works_too_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prefect_ray")
    monkeypatch.setenv("GRISTMILL_POOL", "ray")
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    assert [result for result, _ in mapped(square, range(5))] == [n * n for n in range(5)]
    with pytest.raises(SchemaError, match="this row is bad"):
        list(mapped(refuse, range(3)))


def bytes_of(store: Path, records: Artifact) -> dict[str, bytes]:
    folder = Store(store).path(records)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def report_of(store: Path, report: Artifact) -> dict[str, object]:
    return read_json(Store(store).path(report) / REPORT)
