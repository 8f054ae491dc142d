"""Runs of the toy pictures with their records, made by the flow's own order of stages but without Prefect."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import toy

from flows.train import stages
from tasks.artifact import Artifact, Store
from tasks.request import Request
from tasks.run_record import write_run
from tasks.stage import Job, Outcome, Run, Stage, key_of
from tasks.summary import summarise

_HOME = tempfile.TemporaryDirectory(prefix="gristmill-recorded-")


def execute(self: Stage, run: Run, inputs: dict[str, Artifact]) -> Artifact:
    """In the place of `Stage.execute`: the store is the cache."""
    components = self.components(run, inputs)
    key = key_of(components)
    known = [path for path in run.store.root.glob(f"*/{run.request.name}/{key}") if (path / "manifest.json").exists()]
    made = run.store.find(known[0].parts[-3], run.request.name, key) if known else None
    state = "cached" if made else "ran"
    artifact = made or self.body(Job(self.name, key, components, run.request, run.store), **inputs)
    notes = run.store.manifest(artifact)["provenance"]["notes"]
    run.outcomes.append(Outcome(self.name, key, state, 0.5, artifact, notes, () if made else ("never made",)))
    return artifact


@contextmanager
def without_prefect() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "execute", execute)
        yield


def request(store: Path, about: str = "Toy <b>pictures</b> | & more", **parameters: Any) -> Request:
    raw = store / "given"
    made = toy.dataset(toy.write_raw(raw, toy.pictures()), about=about)
    return toy.request_for(store, made, raw, learning_rate=parameters.pop("learning_rate", 1e-2), **parameters)


def record(asked: Request, run_id: str) -> dict[str, Any]:
    """Runs all stages and writes the record."""
    run = Run(asked, sources=toy.SOURCES)
    with without_prefect():
        stages(run)
    return write_run(run, summarise(run, run_id))


@functools.cache
def _made() -> tuple[dict[str, Any], dict[str, Any]]:
    store = Path(_HOME.name)
    first = record(request(store), "aaaa1111-one")
    return first, record(request(store, learning_rate=1e-5), "bbbb2222-two")


def two_runs(folder: Path) -> tuple[Store, dict[str, Any], dict[str, Any]]:
    """A store of one's own with two runs; the first one's model is the champion, the second learned too slowly."""
    first, second = _made()
    return Store(shutil.copytree(_HOME.name, folder / "store")), first, second
