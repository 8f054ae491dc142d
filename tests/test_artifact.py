"""The store: whole or not at all, verified byte by byte, swept of what the dead left, never of what the living make."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import python

from datasets.errors import ArtifactDamaged, StoreError
from tasks.artifact import MANIFEST, Artifact, Draft, Store
from tasks.durable import read_json
from tasks.lock import Lock

KEY = "k" * 32


def put(content: bytes = b"content", **facts: Any) -> Callable[[Draft], None]:
    def fill(draft: Draft) -> None:
        (draft.folder / "data.bin").write_bytes(content)
        (draft.folder / "deep").mkdir()
        (draft.folder / "deep" / "more.bin").write_bytes(b"more")
        draft.facts = {"rows": 3, **facts}

    return fill


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def leftovers(store: Store) -> list[str]:
    return sorted(path.name for path in (store.root / "tmp").iterdir())


def test_a_committed_artifact_holds_and_can_be_found(store: Store) -> None:
    artifact = store.commit("records", "mnist", KEY, put(), {"stage": "convert"})
    assert store.path(artifact) == store.root / "records" / "mnist" / KEY
    assert (store.path(artifact) / "deep" / "more.bin").read_bytes() == b"more"
    store.verify(artifact)
    assert store.facts(artifact) == {"rows": 3}
    manifest = store.manifest(artifact)
    assert set(manifest["files"]) == {"data.bin", "deep/more.bin"}
    assert manifest["files"]["data.bin"]["bytes"] == 7
    assert manifest["provenance"]["stage"] == "convert"
    assert store.find("records", "mnist", KEY) == artifact
    assert leftovers(store) == []


def test_a_handle_goes_through_json(store: Store) -> None:
    artifact = store.commit("records", "mnist", KEY, put(), {})
    assert Artifact(**json.loads(json.dumps(artifact.to_json()))) == artifact


def test_equal_content_has_an_equal_digest_under_another_key_and_at_another_time(store: Store) -> None:
    one = store.commit("records", "mnist", KEY, put(), {"host": "a"})
    other = store.commit("records", "mnist", "l" * 32, put(), {"host": "b"})
    assert one.digest == other.digest
    assert one != other
    for changed in (put(b"Content"), put(rows=4)):
        assert store.commit("records", "mnist", "m" * 32, changed, {}).digest != one.digest
    assert store.commit("report", "mnist", KEY, put(), {}).digest != one.digest


def grow(folder: Path) -> None:
    with (folder / "data.bin").open("ab") as file:
        file.write(b"x")


def edit_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return damage


def forge(folder: Path) -> None:
    """Another file, with a manifest and a seal to match: only the handle's digest speaks against it."""
    from tasks import artifact

    (folder / "data.bin").write_bytes(b"CONTENT")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["data.bin"]["sha256"] = artifact.sha256_file(folder / "data.bin")
    manifest["seal"] = artifact._seal_of(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "folder gone": (shutil.rmtree, "artifact missing", KEY),
    "folder is a file": (lambda f: (shutil.rmtree(f), f.write_text("")), "artifact missing", KEY),
    "manifest gone": (lambda f: (f / MANIFEST).unlink(), "artifact missing", KEY),
    "manifest cut": (lambda f: os.truncate(f / MANIFEST, 40), "a JSON file can't be read", MANIFEST),
    "manifest empty": (lambda f: os.truncate(f / MANIFEST, 0), "a JSON file can't be read", MANIFEST),
    "manifest is a list": (lambda f: (f / MANIFEST).write_text("[]"), "the manifest was edited", MANIFEST),
    "manifest is a number": (lambda f: (f / MANIFEST).write_text("1e999"), "the manifest was edited", MANIFEST),
    "fact edited": (edit_manifest(lambda m: m["facts"].update(rows=4)), "the manifest was edited", MANIFEST),
    "provenance edited": (edit_manifest(lambda m: m["provenance"].update(x=1)), "the manifest was edited", MANIFEST),
    "seal gone": (edit_manifest(lambda m: m.pop("seal")), "the manifest was edited", MANIFEST),
    "manifest forged": (forge, "the manifest was edited", MANIFEST),
    "file gone": (lambda f: (f / "deep" / "more.bin").unlink(), "a file of an artifact is missing", "more.bin"),
    "file is a folder": (
        lambda f: ((f / "data.bin").unlink(), (f / "data.bin").mkdir()),
        "a file of an artifact is missing",
        "data.bin",
    ),
    "file cut": (lambda f: os.truncate(f / "data.bin", 3), "a file of an artifact was cut or grew", "data.bin"),
    "file grown": (grow, "a file of an artifact was cut or grew", "data.bin"),
    "file edited": (
        lambda f: (f / "data.bin").write_bytes(b"cOntent"),
        "a file of an artifact was edited",
        "data.bin",
    ),
    "file added": (
        lambda f: (f / "deep" / "new.bin").touch(),
        "a file doesn't belong to the artifact that holds it",
        "new.bin",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen_and_the_file_named_and_a_new_commit_heals(store: Store, name: str) -> None:
    damage, what, file = DAMAGE[name]
    artifact = store.commit("records", "mnist", KEY, put(), {})
    store.verify(artifact)  # what this store has seen hold before is looked at again
    damage(store.path(artifact))
    with pytest.raises(ArtifactDamaged) as caught:
        store.verify(artifact)
    assert caught.value.what == what
    assert Path(caught.value.facts["file"]).name == file
    if file in {MANIFEST, KEY}:
        assert store.find("records", "mnist", KEY) is None
        with pytest.raises(ArtifactDamaged):
            store.facts(artifact)
    assert store.commit("records", "mnist", KEY, put(), {}) == artifact
    store.verify(artifact)
    store.commit("other", "mnist", KEY, put(), {})  # sweeps what the replacement may have left aside
    assert leftovers(store) == []


def test_cut_and_edited_files_are_told_with_expected_and_got(store: Store) -> None:
    artifact = store.commit("records", "mnist", KEY, put(), {})
    os.truncate(store.path(artifact) / "data.bin", 3)
    with pytest.raises(ArtifactDamaged, match=r"got: 3 bytes\n  expected: 7 bytes"):
        store.verify(artifact)


def test_a_manifest_with_a_number_that_json_has_not_is_damage_not_a_crash(store: Store) -> None:
    artifact = store.commit("records", "mnist", KEY, put(), {})
    path = store.path(artifact) / MANIFEST
    path.write_text(path.read_text().replace('"rows": 3', '"rows": 1e999'))
    with pytest.raises(ArtifactDamaged, match="edited"):
        store.facts(artifact)


def test_a_swapped_artifact_is_not_taken_for_the_other(store: Store) -> None:
    one = store.commit("records", "mnist", "1" * 32, put(b"one"), {})
    two = store.commit("records", "mnist", "2" * 32, put(b"two"), {})
    shutil.rmtree(store.path(one))
    shutil.copytree(store.path(two), store.path(one))
    with pytest.raises(ArtifactDamaged, match="another artifact is in this place") as caught:
        store.verify(one)
    assert caught.value.facts["got"] == two.digest
    assert caught.value.facts["expected"] == one.digest


def test_a_moved_store_holds(store: Store, tmp_path: Path) -> None:
    artifact = store.commit("records", "mnist", KEY, put(), {})
    store.root.rename(tmp_path / "elsewhere")
    Store(tmp_path / "elsewhere").verify(artifact)


def test_replacing_a_sound_artifact_leaves_the_new_one_only(store: Store) -> None:
    store.commit("records", "mnist", KEY, put(b"old"), {})
    new = store.commit("records", "mnist", KEY, put(b"new"), {})
    assert store.find("records", "mnist", KEY) == new
    assert (store.path(new) / "data.bin").read_bytes() == b"new"
    assert leftovers(store) == []


@pytest.mark.parametrize("error", [ValueError("bad"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_fill_that_raises_leaves_nothing_and_keeps_what_was_there(store: Store, error: BaseException) -> None:
    def fill(draft: Draft) -> None:
        (draft.folder / "half").write_bytes(b"half")
        raise error

    with pytest.raises(type(error)):
        store.commit("records", "mnist", KEY, fill, {})
    assert store.find("records", "mnist", KEY) is None
    assert not (store.root / "records").exists()
    kept = store.commit("records", "mnist", KEY, put(), {})
    with pytest.raises(type(error)):
        store.commit("records", "mnist", KEY, fill, {})
    store.verify(kept)
    assert leftovers(store) == []


def test_facts_that_json_has_not_are_refused_before_anything_is_visible(store: Store) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        store.commit("records", "mnist", KEY, put(rate=float("nan")), {})
    assert not (store.root / "records").exists()


def test_a_file_with_the_manifests_name_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="has the manifest's name"):
        store.commit("records", "mnist", KEY, lambda draft: (draft.folder / MANIFEST).touch(), {})


def test_the_manifest_is_written_last_and_read_back_as_json(store: Store) -> None:
    seen: list[list[str]] = []

    def fill(draft: Draft) -> None:
        put()(draft)
        seen.append(sorted(path.name for path in draft.folder.iterdir()))

    artifact = store.commit("records", "mnist", KEY, fill, {})
    assert seen == [["data.bin", "deep"]]
    assert read_json(store.path(artifact) / MANIFEST)["key"] == KEY


MAKER = """
import sys, time
from pathlib import Path
from tasks.artifact import Store
def fill(draft):
    (draft.folder / "half").write_bytes(b"half")
    print("filling", flush=True)
    sys.stdin.readline()
Store(Path({root!r})).commit("records", "mnist", {key!r}, fill, {{}})
print("done", flush=True)
"""


@contextlib.contextmanager
def maker(store: Store) -> Iterator[subprocess.Popen[str]]:
    process = python(MAKER.format(root=str(store.root), key=KEY), stdin=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "filling\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_draft_of_a_killed_process_is_swept(store: Store) -> None:
    with maker(store) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(leftovers(store)) == 2  # the folder and its lock
    store.commit("records", "mnist", "l" * 32, put(), {})
    assert leftovers(store) == []
    assert store.find("records", "mnist", KEY) is None


def test_the_draft_of_a_living_process_is_kept(store: Store) -> None:
    with maker(store) as process:
        before = leftovers(store)
        store.commit("records", "mnist", "l" * 32, put(), {})
        assert leftovers(store) == before
        assert process.communicate("go\n", timeout=60)[0] == "done\n"
    found = store.find("records", "mnist", KEY)
    assert found is not None
    store.verify(found)


def test_old_rubbish_is_swept(store: Store) -> None:
    (store.root / "tmp" / "old-1").mkdir(parents=True)
    (store.root / "tmp" / "old-1" / "f").touch()
    (store.root / "tmp" / "old-2").touch()
    store.commit("records", "mnist", KEY, put(), {})
    assert leftovers(store) == []


def test_sweeping_gives_a_lock_file_up_only_while_it_holds_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is unlinked after the release may by then be the lock of a draft that lives."""
    (store.root / "tmp").mkdir(parents=True)
    (store.root / "tmp" / "dead.lock").touch()
    release = Lock.release
    living: list[Lock] = []

    def released(lock: Lock) -> None:
        release(lock)
        if lock.path.name == "dead.lock" and not living:
            living.append(Lock(lock.path))  # a draft of the same name takes the lock at once
            living[0].acquire()

    monkeypatch.setattr(Lock, "release", released)
    store.commit("records", "mnist", KEY, put(), {})
    assert living[0].holds()


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        store = Store(small / "store")
        kept = store.commit("records", "mnist", KEY, put(), {})
        for key in (KEY, "l" * 32):
            with pytest.raises(OSError, match="No space left") as caught:
                store.commit("records", "mnist", key, put(b"x" * 2**20), {})
            assert caught.value.errno == errno.ENOSPC
        store.verify(kept)
        assert leftovers(store) == []
        assert store.find("records", "mnist", "l" * 32) is None
        store.commit("records", "mnist", "l" * 32, put(), {})  # and there is room again
    finally:
        subprocess.run(["umount", str(small)], check=True)
