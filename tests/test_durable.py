"""Durable files: whole or not at all, and synced in the order that a power cut respects."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from datasets.errors import ArtifactDamaged
from tasks import durable


@pytest.fixture
def syscalls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which files and folders were synced and renamed, in order."""
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recording_fsync(descriptor: int) -> None:
        seen.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def recording_replace(self: Path, target: Path) -> Path:
        seen.append(f"rename to {Path(target).name}")
        return replace(self, target)

    monkeypatch.setattr(durable.os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "replace", recording_replace)
    return seen


def test_bytes_are_synced_before_the_rename_and_the_folder_after_it(tmp_path: Path, syscalls: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    durable.write_bytes(folder / "a.bin", b"\x00\xff")
    assert (folder / "a.bin").read_bytes() == b"\x00\xff"
    assert [p.name for p in folder.iterdir()] == ["a.bin"]
    assert len(syscalls) == 3
    assert syscalls[0].startswith("fsync .a.bin.")
    assert syscalls[1:] == ["rename to a.bin", "fsync folder"]


def test_failed_write_keeps_the_old_content_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    durable.write_bytes(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        durable.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folder_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.write_bytes(tmp_path / "gone" / "a.bin", b"")
    assert not (tmp_path / "gone").exists()


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    durable.write_json(one, {"b": [1, 2.5, None], "a": "Größe"})
    durable.write_json(two, {"a": "Größe", "b": [1, 2.5, None]})
    assert one.read_bytes() == two.read_bytes()
    assert durable.read_json(one) == {"a": "Größe", "b": [1, 2.5, None]}
    assert json.loads(one.read_text("utf-8")) == durable.read_json(two)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"x": -float("inf")}, {1, 2}])
def test_values_that_json_has_not_leave_the_old_file(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.json"
    durable.write_json(path, 1)
    with pytest.raises((ValueError, TypeError)):
        durable.write_json(path, value)
    assert durable.read_json(path) == 1


@pytest.mark.parametrize("content", [b"", b'{"a": ', b'{"a": NaN}', b"\xff\xfe{", b"{} {}", b"[" * 100_000])
def test_json_that_is_not_json_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactDamaged, match=r"a\.json"):
        durable.read_json(path)


def test_missing_json_is_not_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.read_json(tmp_path / "a.json")


def test_digest_of_a_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    assert durable.sha256_file(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_tree_is_synced_from_the_leaves_up(tmp_path: Path, syscalls: list[str]) -> None:
    root = tmp_path / "root"
    (root / "inner" / "deep").mkdir(parents=True)
    (root / "inner" / "deep" / "x").write_bytes(b"x")
    (root / "y").write_bytes(b"y")
    (root / "dangling").symlink_to("nowhere")
    durable.fsync_tree(root)
    assert syscalls == ["fsync x", "fsync deep", "fsync inner", "fsync y", "fsync root"]


def test_syncing_a_missing_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.fsync_tree(tmp_path / "gone")


def test_sizes_are_those_of_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "deeper" / "still").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "e").write_bytes(b"1")
    folder = tmp_path / "deeper"
    (folder / "a").write_bytes(b"12")
    (folder / "still" / "b").write_bytes(b"123")
    (folder / "still" / ".hidden").write_bytes(b"")
    (folder / "link").symlink_to(folder / "still" / "b")
    (folder / "gone").symlink_to(tmp_path / "nothing")
    (folder / "folder").symlink_to(tmp_path / "elsewhere")
    assert durable.sizes_below(folder) == {"a": 2, "still/b": 3, "still/.hidden": 0, "link": 3}
    with pytest.raises(FileNotFoundError):
        durable.sizes_below(tmp_path / "nothing")
