"""Changing by hand which version a name points to; every change is recorded with the name of who made it."""

from __future__ import annotations

import getpass
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import datasets
from datasets.errors import ParameterError, StoreError, UnknownNameError
from tasks.artifact import Store
from tasks.durable import read_json, write_json
from tasks.forcing import SHOWN, force, refused
from tasks.headline import headline
from tasks.registry import CHAMPION, KIND, PREVIOUS, Registry
from tasks.request import store_root

HISTORY = "by-hand.json"


def hand_over(
    dataset: str, version: str | None = None, *, rollback: bool = False, alias: str | None = None,
    candidate: str | None = None, by: str | None = None, only_list: bool = False, store: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Makes a version the champion, or gives it another name, if that is asked for; and gives the versions as JSON.

    A nightly run doesn't undo it: the decision about its candidate was taken, and isn't taken again.

    Args:
        dataset: Name of a dataset file.
        version: Such as "v2", or a name that a version has.
        rollback: Go back to the champion before this one.
        alias: The name to give to `version` instead of making it the champion.
        candidate: One that was refused: the first digits of its digest, or "newest"; made the champion all the same.
        by: Who does this; the user's name if None, but needed for a candidate.
        only_list: Nothing is changed.
        store: Folder of the artifacts; see `store_root`.

    Raises:
        UnknownNameError: No such dataset, version or candidate.
        ParameterError: Two things are asked for, a name can't be one, or nobody is named for a candidate.
        StoreError: There is nothing to go back to, or what a candidate was made from is gone.
        ArtifactDamaged: The version was damaged on disk; the champion stays.
    """
    if dataset not in datasets.names():
        raise UnknownNameError.among("dataset", dataset, datasets.names())
    _check_one(version=version, rollback=rollback, candidate=candidate, alias=alias, only_list=only_list)
    registry = Registry(Store(store_root(store)), dataset)
    if version is not None or rollback or candidate is not None:
        with registry.lock():
            _change(registry, version or "", rollback, alias, candidate, by)
    return listing(registry)


def _check_one(
    *, version: str | None, rollback: bool, candidate: str | None, alias: str | None, only_list: bool
) -> None:
    asked = [f"version {version}"] * (version is not None) + ["rollback"] * rollback
    asked += [f"force {candidate}"] * (candidate is not None) + ["list"] * only_list
    if len(asked) > 1:
        raise ParameterError("these exclude each other", got=", ".join(asked))
    if alias is not None and version is None:
        raise ParameterError("say which version gets the name", parameter="alias", got=alias, cure="--version v2")


def _change(
    registry: Registry, version: str, rollback: bool, alias: str | None, candidate: str | None, by: str | None
) -> None:
    before = registry.current()
    if alias is not None:
        was, model = registry.aliases().get(alias), registry.find(version)
        registry.name(alias, model)
        _record(registry, f"alias {alias}", was, model.key, by)
        return
    if candidate is not None:
        champion = force(registry, candidate, by or "")
    else:
        model = registry.previous() if rollback else registry.find(version)
        if model is None:
            raise StoreError("there is no champion before this one", dataset=registry.dataset, cure="--list, --version")
        champion = registry.crown(model)
    how = "rollback" if rollback else "forced" if candidate is not None else "version"
    _record(registry, how, before and before.version, champion.version, by)


def _record(registry: Registry, how: str, before: str | None, after: str, by: str | None) -> None:
    path = registry.folder / HISTORY
    rows = read_json(path) if path.exists() else []
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_json(path, [*rows, {"at": at, "by": by or getpass.getuser(), "how": how, "from": before, "to": after}])


def listing(registry: Registry) -> dict[str, Any]:
    """The versions of a dataset's models with their names, and the candidates that were refused, as JSON."""
    champion, before, rows = registry.current(), registry.previous(), []
    names = {**registry.aliases(), **({PREVIOUS: before.key} if before else {})}
    if champion is not None:
        names[CHAMPION] = champion.version
    for version in registry.versions():
        model = registry.store.find(KIND, registry.dataset, version)
        row: dict[str, Any] = {
            "version": version, "champion": bool(champion and champion.version == version),
            "names": sorted(name for name, at in names.items() if at == version),
        }  # fmt: skip
        if model is None:
            rows.append({**row, "damaged": True})
            continue
        metrics = read_json(registry.store.path(model) / "metrics.json")
        created = registry.store.manifest(model)["provenance"]["created"]
        rows.append({
            **row, "damaged": False, "created": created,
            **{name: metrics[name] for name in ("accuracy", "rmse", "loss") if name in metrics},
        })  # fmt: skip
    history = registry.folder / HISTORY
    return {
        "dataset": registry.dataset,
        "champion": champion.version if champion else None,
        "names": names,
        "versions": rows,
        "refused": [
            {name: row[name] for name in ("candidate", "made", "outcome", "reason")}
            for row in refused(registry.store, registry.dataset)
        ],
        "by_hand": read_json(history) if history.exists() else [],
    }


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the versions as a table."""
    what = "test error" if any("rmse" in row for row in report["versions"]) else "test accuracy"
    table = Table("version", "made", what, "test loss", "names", title=f"models of {report['dataset']}")
    for row in report["versions"]:
        mark = ", ".join([*row["names"], *(["damaged"] if row["damaged"] else [])])
        figures = ("", "", "") if row["damaged"] else (row["created"], headline(row), f"{row['loss']:.4f}")
        table.add_row(row["version"], *figures, mark)
    console.print(table)
    for row in report["refused"]:
        line = f"refused {row['made']} candidate {row['candidate'][:SHOWN]} ({row['outcome']}): {row['reason']}"
        console.print(line, markup=False)
    for change in report["by_hand"]:
        line = f"{change['at']} {change['by']}: {change['how']}, {change['from']} -> {change['to']}"
        console.print(line, markup=False)
