"""Changing the champion by hand: to a version, or back to the one before; every change is recorded."""

from __future__ import annotations

import getpass
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import datasets
from datasets.errors import ArtifactDamaged, ParameterError, StoreError, UnknownNameError
from tasks.artifact import Artifact, Store
from tasks.durable import read_json, write_json
from tasks.registry import KIND, Registry
from tasks.request import store_root

HISTORY = "by-hand.json"


def hand_over(
    dataset: str, version: str | None = None, *, rollback: bool = False, store: str | None = None
) -> dict[str, Any]:
    """Makes a version the champion if one is asked for, and gives the versions as JSON.

    A nightly run doesn't undo it: the decision about its candidate was taken, and isn't taken again.

    Args:
        dataset: Name of a dataset file.
        version: Such as "v2".
        rollback: Go back to the champion before this one.
        store: Folder of the artifacts; see `store_root`.

    Raises:
        UnknownNameError: No such dataset or version.
        ParameterError: Both a version and a rollback are asked for.
        StoreError: There is nothing to go back to.
        ArtifactDamaged: The version was damaged on disk; the champion stays.
    """
    if dataset not in datasets.names():
        raise UnknownNameError.among("dataset", dataset, datasets.names())
    if version is not None and rollback:
        raise ParameterError("a version and a rollback exclude each other", got=f"version {version}, rollback")
    registry = Registry(Store(store_root(store)), dataset)
    if version is not None or rollback:
        with registry.lock():
            before = registry.current()
            model = _before(registry) if rollback else _named(registry, version or "")
            champion = registry.crown(model)
            _record(registry, "rollback" if rollback else "version", before and before.version, champion.version)
    return listing(registry)


def _named(registry: Registry, version: str) -> Artifact:
    if version not in registry.versions():
        raise UnknownNameError.among("version", version, registry.versions())
    model = registry.store.find(KIND, registry.dataset, version)
    if model is None:
        raise ArtifactDamaged("the version was damaged", file=registry.folder / version)
    return model


def _before(registry: Registry) -> Artifact:
    champion = registry.current()
    if champion is None or champion.previous is None:
        raise StoreError("there is no champion before this one", dataset=registry.dataset, cure="--list, --version")
    for version in reversed(registry.versions()):
        model = registry.store.find(KIND, registry.dataset, version)
        if model is not None and registry.store.facts(model)["weights"] == champion.previous:
            return model
    raise StoreError("the champion before this one is gone", weights=champion.previous, cure="--list, --version")


def _record(registry: Registry, how: str, before: str | None, after: str) -> None:
    path = registry.folder / HISTORY
    rows = read_json(path) if path.exists() else []
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_json(path, [*rows, {"at": at, "by": getpass.getuser(), "how": how, "from": before, "to": after}])


def listing(registry: Registry) -> dict[str, Any]:
    """The versions of a dataset's models, as JSON."""
    champion, rows = registry.current(), []
    for version in registry.versions():
        model = registry.store.find(KIND, registry.dataset, version)
        row: dict[str, Any] = {"version": version, "champion": bool(champion and champion.version == version)}
        if model is None:
            rows.append({**row, "damaged": True})
            continue
        metrics = read_json(registry.store.path(model) / "metrics.json")
        created = registry.store.manifest(model)["provenance"]["created"]
        rows.append(
            {**row, "damaged": False, "created": created, "accuracy": metrics["accuracy"], "loss": metrics["loss"]}
        )
    history = registry.folder / HISTORY
    return {
        "dataset": registry.dataset,
        "champion": champion.version if champion else None,
        "versions": rows,
        "by_hand": read_json(history) if history.exists() else [],
    }


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the versions as a table."""
    table = Table("version", "made", "test accuracy", "test loss", "", title=f"models of {report['dataset']}")
    for row in report["versions"]:
        mark = "champion" if row["champion"] else "damaged" if row["damaged"] else ""
        figures = ("", "", "") if row["damaged"] else (row["created"], f"{row['accuracy']:.2%}", f"{row['loss']:.4f}")
        table.add_row(row["version"], *figures, mark)
    console.print(table)
    for change in report["by_hand"]:
        console.print(f"{change['at']} {change['by']}: {change['how']}, {change['from']} -> {change['to']}")
