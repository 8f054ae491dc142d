"""What goes and what stays; a crash in the middle; nothing that a champion or a running training needs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from datasets.errors import ParameterError
from tasks import housekeeping
from tasks.artifact import Artifact, Draft, Store
from tasks.housekeeping import clean, show
from tasks.lock import Lock
from tasks.registry import Registry

DAY = 24 * 3600


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make(store: Store, kind: str, key: str, age_days: float, **inputs: Artifact) -> Artifact:
    """An artifact of 1,000 bytes that was last used some days ago, with a record in the cache."""

    def fill(draft: Draft) -> None:
        (draft.folder / "data").write_bytes(key.encode().ljust(1000, b"."))

    components = {"inputs": {name: made.digest for name, made in inputs.items()}}
    made = store.commit(kind, "mnist", key, fill, {"stage": kind, "components": components})
    (store.root / "cache").mkdir(exist_ok=True)
    (store.root / "cache" / key).write_text("{}")
    age(store.path(made) / "manifest.json", age_days)
    return made


def age(path: Path, days: float) -> None:
    used = time.time() - days * DAY
    os.utime(path, (used, used))


def run(store: Store, **limits: Any) -> list[str]:
    """Names of what went."""
    report = clean(store=str(store.root), **limits)
    assert report["bytes"] == sum(row["bytes"] for row in report["removed"])
    return sorted(Path(row["path"]).name for row in report["removed"])


def test_old_ones_go_but_for_the_newest(store: Store) -> None:
    made = {days: make(store, "records", f"k{days}", days) for days in (1, 40, 50, 60, 70)}
    assert run(store, keep=3) == ["k60", "k70"]
    assert not store.path(made[60]).exists()
    assert not (store.root / "cache" / "k60").exists()
    assert store.path(made[50]).exists()
    assert (store.root / "cache" / "k50").exists()
    for days in (1, 40, 50):
        store.verify(made[days])
    assert run(store, keep=3) == []


def test_each_kind_is_counted_by_itself(store: Store) -> None:
    for kind in ("raw", "records"):
        for days in (40, 50):
            make(store, kind, f"{kind}{days}", days)
    assert run(store, keep=1) == ["raw50", "records50"]


def test_a_dry_run_only_says(store: Store) -> None:
    for days in (40, 50):
        make(store, "records", f"k{days}", days)
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    assert run(store, keep=1, dry_run=True) == ["k50"]
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before


def test_the_lineage_of_the_champion_and_of_the_one_before_stays(store: Store) -> None:
    registry = Registry(store, "mnist")
    chains = {}
    for number, name in enumerate(("first", "second", "third")):
        raw = make(store, "raw", f"raw-{name}", 100 - number)
        records = make(store, "records", f"records-{name}", 100 - number, raw=raw)
        chains[name] = make(store, "weights", f"weights-{name}", 100 - number, records=records)
        with registry.lock():
            registry.crown(registry.add(chains[name], {}))
    for kind in ("raw", "records", "weights"):
        make(store, kind, f"{kind}-newest", 1)
    assert run(store, keep=1) == ["raw-first", "records-first", "weights-first"]
    champion = registry.champion()
    assert champion is not None
    assert champion.version == "v3"


def test_a_version_with_a_name_is_pinned_with_all_that_it_was_made_from(store: Store) -> None:
    registry = Registry(store, "mnist")
    for number, name in enumerate(("old", "first", "second")):
        raw = make(store, "raw", f"raw-{name}", 100 - number)
        weights = make(store, "weights", f"weights-{name}", 100 - number, raw=raw)
        with registry.lock():
            registry.crown(registry.add(weights, {}))
    for kind in ("raw", "weights"):
        make(store, kind, f"{kind}-newest", 1)
    registry.name("paper", registry.find("v1"))
    assert run(store, keep=1) == []
    registry.name("paper", registry.find("v2"))
    assert run(store, keep=1, dry_run=True) == ["raw-old", "weights-old"]
    manifest = store.path(registry.find("v2")) / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"facts"', '"fact"'))
    assert run(store, keep=1) == []
    manifest.write_text(text)
    (registry.folder / "aliases.json").write_text('{"paper": "v9"}')
    assert run(store, keep=1) == []
    (registry.folder / "aliases.json").unlink()
    assert run(store, keep=1) == ["raw-old", "weights-old"]


def test_a_damaged_pointer_keeps_everything(store: Store) -> None:
    for days in (40, 50):
        make(store, "records", f"k{days}", days)
    pointer = Registry(store, "mnist").pointer
    pointer.parent.mkdir(parents=True)
    pointer.write_text("{}")
    assert run(store, keep=1) == []


def test_a_limit_of_size_takes_the_least_recently_used_but_nothing_of_the_last_hour(store: Store) -> None:
    for days in (0.001, 2, 3, 4, 5):
        make(store, "records", f"k{days}", days)
    size = sum(path.stat().st_size for path in store.root.glob("records/*/*/*")) / 5
    assert run(store, keep=1, most_gb=3.5 * size / 1e9) == ["k4", "k5"]
    assert run(store, keep=1, most_gb=0) == ["k2", "k3"]
    assert [path.name for path in store.root.glob("records/mnist/*")] == ["k0.001"]


def test_columns_without_records_and_checkpoints_of_finished_trainings_go(store: Store) -> None:
    records = make(store, "records", "r", 1)
    make(store, "weights", "done", 1, records=records)
    folders = {
        "kept columns": store.root / "columns" / "mnist" / records.digest[:32],
        "lost columns": store.root / "columns" / "mnist" / ("0" * 32),
        "finished": store.root / "checkpoints" / "mnist" / "done",
        "unfinished": store.root / "checkpoints" / "mnist" / "half",
        "unfinished and old": store.root / "checkpoints" / "mnist" / "old",
    }
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"1" * 10)
        for path in (folder / "x", folder):
            age(path, 90 if name == "unfinished and old" else 1)
    assert run(store) == sorted(["0" * 32, "done", "old"])
    assert folders["kept columns"].exists()
    assert folders["unfinished"].exists()


@pytest.mark.parametrize("own", ["old", "old/0-4"])  # of a training, and of one program of a sweep's members
def test_a_training_that_runs_keeps_its_checkpoints(store: Store, own: str) -> None:
    folder = store.root / "checkpoints" / "mnist" / own
    folder.mkdir(parents=True)
    lock = Lock(folder / ".lock")
    lock.acquire()
    for path in (folder / ".lock", folder, folder.parent):
        age(path, 90)
    assert run(store) == []
    lock.release()
    for path in (folder / ".lock", folder, folder.parent):
        age(path, 90)
    assert run(store) == ["old"]


def test_capsules_downloads_and_locks_age(store: Store) -> None:
    ages = {
        "capsules/mnist/old": 40, "capsules/mnist/new": 1, "partial/old.part": 40, "partial/new.part": 1,
        "logs/mnist/old": 40, "locks/old.lock": 40, "locks/new.lock": 1, "runs/mnist/old.json": 40,
        "runs/mnist/new.json": 1, "reports/mnist/old.html": 40,
    }  # fmt: skip
    for name, days in ages.items():
        path = store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        age(path, days)
    assert run(store) == ["old", "old", "old.html", "old.json", "old.lock", "old.part"]


def test_a_crash_in_the_middle_leaves_a_valid_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [make(store, "records", f"k{days}", days) for days in (1, 40, 50)]

    def dies(path: Path, ignore_errors: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(housekeeping.shutil, "rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            run(store, keep=1)
    gone = [artifact for artifact in made if not store.path(artifact).exists()]
    assert len(gone) == 1, "one was on its way out"
    assert not (store.root / "cache" / gone[0].key).exists()
    for artifact in made:
        if artifact not in gone:
            store.verify(artifact)
    assert len(run(store, keep=1)) == 1


@pytest.mark.parametrize("limits", [{"days": 0.0}, {"days": "x"}, {"keep": 0}, {"keep": True}, {"most_gb": -1.0}])
def test_wrong_limits_are_refused(store: Store, limits: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        clean(store=str(store.root), **limits)


def test_an_empty_store_is_clean(store: Store) -> None:
    assert run(store) == []
    assert not store.root.exists()


def test_the_table_sums_up(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for days in (40, 50, 60):
        make(store, "records", f"k{days}", days)
    show(clean(store=str(store.root), keep=1, dry_run=True), Console(width=160))
    shown = capsys.readouterr().out
    assert "would go" in shown
    line = next(line for line in shown.splitlines() if "records of mnist" in line)
    assert " 2 " in line
