"""A stage: a function from artifacts to an artifact, with the key that decides whether it has to run at all.

The key is a hash of components, and nothing else decides: the code that the stage reaches, the versions of the
libraries that decide its bytes, the digests of its input artifacts, and the parameters that it reads. Paths, times, run
ids and the parameters of other stages are in no key. Components are kept in the artifact's manifest, so that a
later run can say which of them changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks import reasons
from tasks.artifact import Artifact, Draft, Store
from tasks.canonical import canonical
from tasks.durable import remove
from tasks.fingerprint import Sources
from tasks.hashing import Hashing
from tasks.lock import Lock
from tasks.progress import LOG, tell
from tasks.request import Request
from tasks.settings import LIBRARY, settings

FORMAT = 1
ASKED_FOR = "that was asked for (refresh, from)"


@dataclass(frozen=True)
class Job:
    """What the body of a stage gets: its identity, the request, and where to put the artifact.

    Attributes:
        stage: Name of the stage.
        key: Of this run of it.
        components: What the key is made of.
        request: The checked request.
        store: Where artifacts are.
        anew: Whether the body takes nothing of what an earlier run of the stage left: no checkpoint, no converted part.
        notes: For the summary of the run; filled by the body, kept in the manifest's provenance.
        started: Reading of `time.perf_counter`, for the seconds in the provenance.
    """

    stage: str
    key: str
    components: dict[str, Any]
    request: Request
    store: Store
    anew: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def commit(self, kind: str, fill: Callable[[Draft], None]) -> Artifact:
        """Makes this job's artifact; see `Store.commit`."""

        def noted(draft: Draft) -> None:
            fill(draft)
            draft.provenance["notes"] = self.notes
            draft.provenance["seconds"] = time.perf_counter() - self.started

        provenance = {"stage": self.stage, "components": self.components}
        return self.store.commit(kind, self.request.name, self.key, noted, provenance)


@dataclass(frozen=True)
class Outcome:
    """What became of a stage in one run.

    Attributes:
        name: Of the stage.
        key: Of this run of it.
        state: "ran", "cached" or "resumed".
        seconds: From the call to the result, waiting for locks included.
        artifact: Its result.
        notes: What the body noted when it made the artifact.
        because: Why it ran, in words; nothing if it was cached.
    """

    name: str
    key: str
    state: str
    seconds: float
    artifact: Artifact
    notes: dict[str, Any]
    because: tuple[str, ...] = ()


@dataclass
class Run:
    """One run of the flow: the request and what became of its stages so far."""

    request: Request
    outcomes: list[Outcome] = field(default_factory=list)
    sources: Sources = field(default_factory=Sources)
    hashing: Hashing = field(default_factory=Hashing)

    @functools.cached_property
    def store(self) -> Store:
        """Where artifacts are."""
        return Store(self.request.store, self.hashing.sha256)

    @functools.cached_property
    def before(self) -> dict[str, dict[str, Any]]:
        """What each stage made last, as of the first question: what it makes in this run explains nothing of it."""
        return reasons.newest(self.store, self.request.name)

    @property
    def records(self) -> Path:
        """Folder of the cache records."""
        return self.store.root / "cache"

    def take(self, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        """The artifact of a stage."""
        return stage.execute(self, inputs)


@dataclass(frozen=True)
class Stage:
    """A stage of the flow.

    Attributes:
        name: Shown everywhere.
        body: Does the work: (job, **inputs) -> artifact.
        parameters: The part of the request that the stage reads; what isn't here can't change the key.
        libraries: Distributions whose version decides the bytes.
        advisory: Inputs that only tell how to work faster, or that were checked before; they don't count in the key.
        code: More code that decides the bytes, as "module:name", given the request; such as the model.
        lost: What the stage made besides its artifact and is gone, given a cached artifact; None if all is there.
        part: Tells apart runs that do this stage together, each its part; runs of one part wait for each other.
        exact: Whether the same key always makes the same bytes; not so for measurements.
    """

    name: str
    body: Callable[..., Artifact]
    parameters: Callable[[Run], dict[str, Any]]
    libraries: tuple[str, ...] = ()
    advisory: frozenset[str] = frozenset()
    code: Callable[[Request], tuple[str, ...]] = lambda request: ()
    lost: Callable[[Store, Artifact], str | None] = lambda store, artifact: None
    part: Callable[[Request], str] = lambda request: ""
    exact: bool = True

    def __call__(self, run: Run, **inputs: Artifact) -> Artifact:
        """Takes the artifact from the cache or makes it; see `execute`. A plan only says what would happen."""
        return run.take(self, inputs)

    def execute(self, run: Run, inputs: dict[str, Artifact]) -> Artifact:
        """Runs the stage as a Prefect task, if its key isn't in the cache; one process at a time, others wait.

        Raises:
            GristmillError: As the body.
        """
        from tasks import cache
        from tasks.notify import mark_stage

        started = time.perf_counter()
        components = self.components(run, inputs)
        job = Job(self.name, key_of(components), components, run.request, run.store)
        ran: list[str] = []

        def work() -> dict[str, str]:
            if not ran:
                run.hashing.stop()
                mark_stage(self.name)
            ran.append("ran")
            for name, artifact in inputs.items():
                LOG.debug("%s reads %s %s", self.name, name, artifact.digest[:12])
            return self.body(replace(job, anew=anew and len(ran) == 1), **inputs).to_json()

        task_run_name, record = f"{self.name} {run.request.name}", run.records / job.key
        policy = cache.ContentKey(key=job.key, store=run.store, records=run.records, lost=self.lost)
        wrapped = cache.as_task(self.name, task_run_name, policy, work)
        with self._alone(run, f"{job.key}{self.part(run.request)}"):
            past = cache.recorded(record)
            anew = self.name in run.request.again and not cache.came_here_before(task_run_name)
            because: tuple[str, ...] = ()
            if anew and past:
                because = (ASKED_FOR,)
                LOG.info("%s runs again: %s", self.name, ASKED_FOR)
                remove(record)
            elif not record.exists():
                because = self._differs(run, job)
                LOG.info("%s runs: %s", self.name, "; ".join(because))
            value = wrapped()  # without parameters: Prefect would look through them for results of other tasks
        artifact = Artifact(**value)
        if ran and self.exact and past and past.key == job.key and past.digest != artifact.digest:
            LOG.warning("%s gave other bytes than the last time: %s, now %s", self.name, past.digest, artifact.digest)
        run.store.touch(artifact)
        notes = run.store.manifest(artifact)["provenance"].get("notes", {})
        state = ("resumed" if notes.get("resumed_from") else "ran") if ran else "cached"
        because = (() if not ran else because) if policy.dropped is None else (policy.dropped,)
        seconds = time.perf_counter() - started
        run.outcomes.append(Outcome(self.name, job.key, state, seconds, artifact, notes, because))
        tell(self.name, f"{state} in {run.outcomes[-1].seconds:.1f} s")
        return artifact

    def components(self, run: Run, inputs: dict[str, Artifact]) -> dict[str, Any]:
        """What the key is made of, as JSON."""
        code: set[str] = {f"{self.body.__module__}:{self.body.__qualname__}", *self.code(run.request)}
        parameters = canonical(self.parameters(run), code)
        computing = settings() if LIBRARY in self.libraries else {}
        return {
            "format": FORMAT,
            "stage": self.name,
            "dataset": run.request.name,
            "code": run.sources.fingerprint(code),
            "libraries": {name: installed(name) for name in self.libraries},
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "inputs": {name: artifact.digest for name, artifact in inputs.items() if name not in self.advisory},
            "parameters": parameters,
            **({"settings": computing} if computing else {}),
        }

    def _differs(self, run: Run, job: Job) -> tuple[str, ...]:
        """Why the key isn't in the cache: what differs from the last time."""
        past = run.before.get(self.name)
        there = past is not None and run.store.find(past["kind"], run.request.name, job.key) is not None
        return tuple(reasons.sentences(reasons.without_record(past, job.components, there=there)))

    @contextlib.contextmanager
    def _alone(self, run: Run, key: str) -> Iterator[None]:
        folder = run.store.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / f"{self.name}-{key}.lock")
        if not lock.acquire(blocking=False):
            LOG.info("%s: waiting for process %s, which works on the same thing", self.name, lock.holder())
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


@functools.cache
def installed(name: str) -> str:
    """Version of a distribution; looked up once a process, because it takes as long as a cached stage."""
    return version(name)


def key_of(components: dict[str, Any]) -> str:
    """The key that components make: 32 hex digits."""
    text = json.dumps(components, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
