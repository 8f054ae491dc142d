"""What a run reads before its flow begins: Prefect tells its server three things first, and this process only waits."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from prefect.runtime import flow_run

from tasks.artifact import Store
from tasks.fingerprint_memory import RememberedSources
from tasks.hashing import Hashing
from tasks.request import Request, run_name, store_root
from tasks.run_record import last_made
from tasks.stage import Run

_begun: dict[str, tuple[RememberedSources, Hashing]] = {}
"""By the id of the flow run, until its flow begins."""


def name_and_begin() -> str:
    """Begins to read all source files and what the dataset's last run used, and gives the flow run's name.

    Prefect asks for the name as soon as the run exists and its parameters were found good.
    """
    given = flow_run.parameters
    store = Store(store_root(given.get("store")))
    sources, hashing = RememberedSources(store.root), Hashing()
    Thread(target=_read, args=(sources,), daemon=True).start()
    hashing.begin(map(store.path, last_made(store, given["dataset"])))
    _begun.clear()  # of a run whose flow didn't begin after all
    _begun[str(flow_run.id)] = sources, hashing
    return run_name()


def _read(sources: RememberedSources) -> None:
    with suppress(OSError):  # whoever asks for it is going to meet the same error
        sources.read()


def run_of(request: Request) -> Run:
    """The run of a checked request, with what was begun for the current flow run."""
    sources, hashing = _begun.pop(str(flow_run.id), None) or (RememberedSources(request.store), Hashing())
    return Run(request, sources=sources, hashing=hashing)
