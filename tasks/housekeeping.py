"""What of a store nothing needs any more, and its removal; a crash in the middle leaves a valid store.

An artifact goes when it was not used for `days`, isn't among the newest `keep` of its kind and dataset, and isn't in
the lineage of a champion, of the one before it or of a version with a name. Versions of models never go: they are what
all of this is for.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from datasets.errors import ArtifactDamaged, UnknownNameError
from datasets.schema import check_float, check_int
from tasks.artifact import MANIFEST, Store
from tasks.lock import Lock
from tasks.registry import KIND, Registry
from tasks.request import store_root

HOUR = 3600.0
DAY = 24 * HOUR
TIMED = {"capsules": "*/*", "logs": "*/*", "partial": "*", "reports": "*/*", "runs": "*/*"}
"""Folders whose files only age."""


@dataclass(frozen=True)
class Thing:
    """A file or folder of the store.

    Attributes:
        path: Where it is.
        what: Kind and dataset, such as "records of mnist".
        used: When it was last used, in seconds since the epoch.
        bytes: Its size.
        record: Record of the cache that leads to it, removed first.
        digest: Of an artifact, else "".
        inputs: Digests that an artifact was made from.
    """

    path: Path
    what: str
    used: float
    bytes: int
    record: Path | None = None
    digest: str = ""
    inputs: frozenset[str] = field(default_factory=frozenset)


def clean(
    *, days: float = 30.0, keep: int = 3, most_gb: float | None = None, dry_run: bool = False, store: str | None = None
) -> dict[str, Any]:
    """Removes what nothing needs and gives what went, as JSON.

    Args:
        days: Age since the last use below which nothing goes, unless `most_gb` is exceeded.
        keep: How many of the newest artifacts of a kind stay whatever their age.
        most_gb: If more than this would remain, artifacts go that are younger too, least recently used first.
        dry_run: Only say what would go.
        store: Folder of the artifacts; see `store_root`.

    Raises:
        ParameterError: A limit is no number or too small.
    """
    check_float("days", days, HOUR / DAY, 1e6)
    check_int("keep", keep, 1)
    if most_gb is not None:
        check_float("most_gb", most_gb, 0, 1e9)
    root = store_root(store)
    now = time.time()
    artifacts = list(_artifacts(root))
    needed = _lineage(root, artifacts) | _newest(artifacts, keep)
    loose = [thing for thing in artifacts if thing.path not in needed and now - thing.used > HOUR]
    going = [thing for thing in loose if now - thing.used > days * DAY]
    if most_gb is not None:
        over = sum(thing.bytes for thing in artifacts) - sum(thing.bytes for thing in going) - most_gb * 1e9
        for thing in sorted(set(loose) - set(going), key=lambda thing: thing.used):
            if over <= 0:
                break
            going.append(thing)
            over -= thing.bytes
    gone = {thing.path for thing in going}
    staying = {thing.digest for thing in artifacts if thing.path not in gone}
    going += [thing for thing in _derived(root, staying) if now - thing.used > HOUR]
    seen = {thing.path for thing in going}
    going += [thing for thing in _aged(root) if now - thing.used > days * DAY and thing.path not in seen]
    if not dry_run:
        for thing in going:
            _remove(root, thing)
    return {
        "store": str(root), "dry_run": dry_run, "bytes": sum(thing.bytes for thing in going),
        "removed": [
            {"what": thing.what, "path": str(thing.path), "bytes": thing.bytes, "days": (now - thing.used) / DAY}
            for thing in going
        ],
    }  # fmt: skip


def _artifacts(root: Path) -> Iterator[Thing]:
    for path in root.glob(f"*/*/*/{MANIFEST}"):
        kind, dataset, key = path.parent.relative_to(root).parts
        if kind == KIND:
            continue
        try:
            manifest = json.loads(path.read_bytes())
            digest, inputs = manifest["digest"], manifest["provenance"]["components"]["inputs"].values()
        except (ValueError, KeyError, TypeError):
            digest, inputs = "", ()  # a damaged one ages like the others
        yield Thing(
            path.parent, f"{kind} of {dataset}", path.stat().st_mtime, _size(path.parent), root / "cache" / key, digest,
            frozenset(inputs),
        )  # fmt: skip


def _lineage(root: Path, artifacts: list[Thing]) -> set[Path]:
    """Artifacts that champions, those before them and versions with a name were made from."""
    todo: set[str] = set()
    for folder in root.glob(f"{KIND}/*"):
        try:
            todo |= Registry(Store(root), folder.name).pinned()
        except (ArtifactDamaged, UnknownNameError):
            return {thing.path for thing in artifacts}  # nobody knows what it needs: keep everything
    by_digest = {thing.digest: thing for thing in artifacts if thing.digest}
    needed: set[Path] = set()
    while todo:
        thing = by_digest.get(todo.pop())
        if thing is not None and thing.path not in needed:
            needed.add(thing.path)
            todo |= thing.inputs
    return needed


def _newest(artifacts: list[Thing], keep: int) -> set[Path]:
    kinds: dict[str, list[Thing]] = defaultdict(list)
    for thing in artifacts:
        kinds[thing.what].append(thing)
    ranked = (sorted(things, key=lambda thing: thing.used, reverse=True)[:keep] for things in kinds.values())
    return {thing.path for things in ranked for thing in things}


def _derived(root: Path, staying: set[str]) -> Iterator[Thing]:
    """Columns of records that are gone, and checkpoints of trainings that are finished."""
    prefixes = {digest[:32] for digest in staying}
    for path in root.glob("columns/*/*"):
        if path.is_dir() and path.name not in prefixes:
            yield Thing(path, f"columns of {path.parent.name}", path.stat().st_mtime, _size(path))
    for path in root.glob("checkpoints/*/*"):
        finished = root / "weights" / path.parent.name / path.name / MANIFEST
        if path.is_dir() and finished.exists() and _is_free(path):
            yield Thing(path, f"checkpoints of {path.parent.name}", finished.stat().st_mtime, _size(path))


def _aged(root: Path) -> Iterator[Thing]:
    for name, pattern in TIMED.items():
        for path in (root / name).glob(pattern):
            yield Thing(path, name, path.stat().st_mtime, _size(path))
    for path in root.glob("checkpoints/*/*"):
        if path.is_dir() and _is_free(path):
            yield Thing(path, f"checkpoints of {path.parent.name}", _latest(path), _size(path))
    for path in root.glob("locks/*.lock"):
        if Lock(path).is_free():
            yield Thing(path, "locks", path.stat().st_mtime, 0)


def _remove(root: Path, thing: Thing) -> None:
    """The record first, then the name, then the bytes: whatever a crash leaves is either whole or not found."""
    if thing.record is not None:
        thing.record.unlink(missing_ok=True)
    if not thing.path.exists():
        return
    aside = root / "tmp" / f"old-{uuid.uuid4().hex[:12]}"
    aside.parent.mkdir(exist_ok=True)
    thing.path.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _is_free(checkpoints: Path) -> bool:
    """Whether no training writes there; each program of a sweep's members has a folder of its own in theirs."""
    return all(Lock(path).is_free() for path in (checkpoints / ".lock", *checkpoints.glob("*/.lock")))


def _latest(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.rglob("*")), default=folder.stat().st_mtime)


def show(report: dict[str, Any], console: Console) -> None:
    """Prints what went, summed up by kind."""
    sums: dict[str, tuple[int, int]] = {}
    for row in report["removed"]:
        count, size = sums.get(row["what"], (0, 0))
        sums[row["what"]] = (count + 1, size + row["bytes"])
    verb = "would go" if report["dry_run"] else "gone"
    table = Table("what", "how many", "MB", title=f"{verb} from {report['store']}", title_justify="left")
    for what, (count, size) in sorted(sums.items()):
        table.add_row(what, str(count), f"{size / 1e6:,.1f}")
    table.add_row("all", str(len(report["removed"])), f"{report['bytes'] / 1e6:,.1f}", style="bold")
    console.print(table)
