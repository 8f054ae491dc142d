from __future__ import annotations

import os
import signal
import threading

import pytest

from datasets.errors import ParameterError, SchemaError, TransientError, UnknownNameError
from tasks.pool import Pool, configured, mapped


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refuse(number: int) -> int:
    if number:
        raise SchemaError("this row is bad", row=number, cure="mend it")
    return number


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_results_come_in_the_order_of_the_items(monkeypatch: pytest.MonkeyPatch, pool: str) -> None:
    monkeypatch.setenv("GRISTMILL_POOL", pool)
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    results = list(mapped(square, range(12)))
    assert [result for result, _ in results] == [n * n for n in range(12)]
    assert ({pid for _, pid in results} == {os.getpid()}) is (pool == "threads")


def test_threads_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_WORKERS", "3")
    together = threading.Barrier(3, timeout=20)
    assert len(list(mapped(lambda _: together.wait(), range(3)))) == 3


def test_one_worker_is_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_WORKERS", "1")
    assert set(mapped(lambda _: threading.get_ident(), range(3))) == {threading.get_ident()}


def test_the_first_error_in_order_ends_it_and_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            threading.Event().wait(0.2)
        if number < 2:
            raise ValueError(f"item {number}")
        threading.Event().wait(0.2)
        return number

    with pytest.raises(ValueError, match="item 0"):
        list(mapped(work, range(50)))
    assert len(begun) < 10


def test_work_that_can_not_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_POOL", "processes")
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    with pytest.raises(ParameterError, match="can't be sent") as caught:
        list(mapped(lambda number: number, range(3)))
    assert "GRISTMILL_POOL=threads" in str(caught.value.cure)


def kill_itself(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_process_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_POOL", "processes")
    monkeypatch.setenv("GRISTMILL_WORKERS", "2")
    with pytest.raises(TransientError, match="was killed"):
        list(mapped(kill_itself, range(3)))


def test_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRISTMILL_POOL", raising=False)
    monkeypatch.delenv("GRISTMILL_WORKERS", raising=False)
    monkeypatch.delenv("GRISTMILL_CLUSTER", raising=False)
    assert configured() == Pool("threads", min(os.cpu_count() or 1, 8))
    monkeypatch.setenv("GRISTMILL_WORKERS", "12")
    assert configured() == Pool("threads", 12)
    for wrong in ("0", "-1", "two", "1.5", ""):
        monkeypatch.setenv("GRISTMILL_WORKERS", wrong)
        with pytest.raises(ParameterError):
            configured()
    monkeypatch.setenv("GRISTMILL_WORKERS", "3")
    monkeypatch.setenv("GRISTMILL_CLUSTER", "tcp://scheduler:8786")
    with pytest.raises(ParameterError, match="only Dask and Ray have a cluster"):
        configured()
    monkeypatch.setenv("GRISTMILL_POOL", "dask")
    assert configured() == Pool("dask", 3, "tcp://scheduler:8786")
    monkeypatch.setenv("GRISTMILL_POOL", "thread")
    with pytest.raises(UnknownNameError, match="did you mean threads"):
        configured()
