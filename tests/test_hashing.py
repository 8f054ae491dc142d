"""Digests that were taken ahead: those of the bytes that are there when they are asked for."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import Future
from pathlib import Path
from threading import Event

import pytest

from tasks import hashing
from tasks.durable import sha256_file
from tasks.hashing import LEAST, Hashing

BYTES = bytes(range(256)) * (LEAST // 256)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hashing, "SETTLED", 0)
    (tmp_path / "artifact" / "deeper").mkdir(parents=True)
    (tmp_path / "artifact" / "deeper" / "large").write_bytes(BYTES)
    (tmp_path / "artifact" / "small").write_bytes(b"small")
    return tmp_path / "artifact"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are read when they are asked for, from now on."""
    seen: list[Path] = []
    monkeypatch.setattr(hashing, "sha256_file", lambda path: seen.append(path) or sha256_file(path))
    return seen


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def taken(made: Hashing) -> None:
    """Waits for the threads."""
    for one in made._ahead.values():
        one.result()


def test_large_files_are_read_ahead_once_and_all_digests_are_right(
    folder: Path, now: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "PIECE", 1000)
    large, small, made = folder / "deeper" / "large", folder / "small", Hashing()
    made.begin([folder, folder.parent / "gone"])
    taken(made)
    assert {path: made.sha256(path) for path in (large, small)} == {
        path: digest(path) for path in (large, small)
    }  # fmt: skip
    assert now == [small]
    assert made.sha256(large) == digest(large)
    assert now == [small, large]  # once: what is asked for again may be another file


def test_a_file_that_no_thread_has_begun_with_is_read_by_whoever_asks(folder: Path, now: list[Path]) -> None:
    large, made, waiting = folder / "deeper" / "large", Hashing(), Future()
    made._ahead[large] = waiting
    assert made.sha256(large) == digest(large)
    assert (now, waiting.cancelled()) == ([large], True)


def test_files_that_go_while_they_are_looked_for_are_left_out(folder: Path) -> None:
    (folder / "going").symlink_to(folder / "gone")
    assert hashing._large(folder) == [folder / "deeper" / "large"]


@pytest.mark.parametrize("how", ["edited", "replaced", "cut", "removed"])
def test_a_file_that_was_touched_since_is_read_again(folder: Path, how: str) -> None:
    large, made = folder / "deeper" / "large", Hashing()
    made.begin([folder])
    taken(made)
    at = large.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    if how == "removed":
        large.unlink()
        with pytest.raises(FileNotFoundError):
            made.sha256(large)
        return
    other = BYTES[:-1] if how == "cut" else BYTES[::-1]
    if how == "replaced":
        large.rename(folder / "old")
    large.write_bytes(other)
    os.utime(large, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert made.sha256(large) == hashlib.sha256(other).hexdigest()


def test_a_file_that_changed_just_now_and_what_a_stage_outlived_count_for_nothing(
    folder: Path, now: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    large, made = folder / "deeper" / "large", Hashing()
    made.begin([folder])
    taken(made)
    made.stop()
    assert made.sha256(large) == digest(large)
    assert now == [large]
    monkeypatch.setattr(hashing, "SETTLED", 3600 * 10**9)
    made.begin([folder])
    assert made.sha256(large) == digest(large)
    assert now == [large, large]
    assert made._ahead == {}


def test_nothing_is_read_to_its_end_for_nobody(folder: Path) -> None:
    large, stopped = folder / "deeper" / "large", Event()
    assert hashing._stamped(large, stopped) == (hashing.stamp_of(large), digest(large))
    stopped.set()
    assert hashing._stamped(large, stopped) is None
    assert hashing._stamped(folder / "gone", Event()) is None
