"""One holder at a time, freed by the kernel when the holder dies."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from toy import python

from tasks.lock import Lock

HOLD = """
import sys
from pathlib import Path
from tasks.lock import Lock
with Lock(Path({path!r})):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder_of(path: Path) -> subprocess.Popen[str]:
    process = python(HOLD.format(path=str(path)), stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_holder_at_a_time_also_within_a_process(tmp_path: Path) -> None:
    one, other = Lock(tmp_path / "l"), Lock(tmp_path / "l")
    assert one.acquire(blocking=False)
    assert not other.acquire(blocking=False)
    assert other.holder() == os.getpid()
    one.release()
    assert other.acquire(blocking=False)
    assert [one.holds(), other.holds()] == [False, True]


def test_a_process_waits_for_another_and_gets_it_when_that_is_killed(tmp_path: Path) -> None:
    process = holder_of(tmp_path / "l")
    try:
        lock = Lock(tmp_path / "l")
        assert not lock.acquire(blocking=False)
        assert lock.holder() == process.pid
        waiter = threading.Thread(target=lock.acquire)
        waiter.start()
        time.sleep(0.2)
        assert waiter.is_alive()
        process.send_signal(signal.SIGKILL)
        waiter.join(30)
        assert lock.holds()
        assert lock.holder() == os.getpid()
    finally:
        process.kill()
        process.communicate()


def test_it_is_given_back_when_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Lock(tmp_path / "l"):
        raise KeyError
    assert Lock(tmp_path / "l").acquire(blocking=False)


def test_a_file_removed_by_its_last_holder_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Lock(tmp_path / "l"), Lock(tmp_path / "l"), Lock(tmp_path / "l")
    first.acquire()
    flock = fcntl.flock
    calls: list[int] = []

    def late(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:  # between our open and our lock the holder goes and takes its file with it
            (tmp_path / "l").unlink()
            first.release()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert second.acquire(blocking=False)
    assert len(calls) == 2
    assert second.holds()
    assert not third.acquire(blocking=False)


def test_it_says_when_its_file_is_gone_or_another(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "l")
    assert not lock.holds()
    lock.acquire()
    assert lock.holds()
    (tmp_path / "l").unlink()
    assert not lock.holds()
    (tmp_path / "l").touch()
    assert not lock.holds()


def test_release_without_a_lock_does_nothing(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "l")
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()
    assert not lock.holds()


@pytest.mark.parametrize("text", ["", "no number", "12 34"])
def test_a_holder_that_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "l").write_text(text)
    assert Lock(tmp_path / "l").holder() is None
    assert Lock(tmp_path / "absent").holder() is None


def test_a_program_that_the_holder_starts_does_not_keep_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "l")
    lock.acquire()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.release()
        free = Lock(tmp_path / "l").acquire(blocking=False)
        child.kill()
    assert free


def test_it_can_not_be_made_below_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Lock(tmp_path / "absent" / "l").acquire()
