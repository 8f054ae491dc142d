"""The checkpoints of one training: saved while it goes on, trusted only after they were verified.

Life of a save: the state is copied to the host (this blocks), one thread writes it with Orbax to `.saving-<step>-...`,
adds digests, syncs every file, and renames the folder to `<step>` (this is the commit). So a step's name means that the
step was complete; a kill leaves names that the next start clears; and a step that isn't whole was damaged later.

At most one save is under way: the next one waits for it, and raises its error if it failed. A step that is only of use
because it is the best so far can be held on the host until the next save, which writes it first: an evaluation every
second then costs a copy every second, not a write. A kill before that loses nothing, because the training that resumes
comes by the same step again.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from datasets.errors import CheckpointCorrupt, CheckpointError, CheckpointLocked, GristmillError
from datasets.schema import check_int
from tasks import durable, leaves, retention, snapshot
from tasks.leaves import Leaf
from tasks.lock import Lock
from tasks.retention import Retention, Warn
from tasks.snapshot import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Restored:
    """A verified checkpoint.

    Attributes:
        step: At which it was saved.
        state: The pytree, on the shardings that were asked for.
        meta: The JSON that was saved with it.
        metrics: Those that were finite.
    """

    step: int
    state: Any
    meta: Any
    metrics: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """What saving has cost since the start.

    Attributes:
        saves: Commits.
        blocked_s: Seconds that `save` kept the training waiting.
        written_s: Seconds from the copy to the commit, most of them beside the training.
        bytes: Size of the newest checkpoint on disk.
    """

    saves: int = 0
    blocked_s: float = 0.0
    written_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class _Snapshot:
    """A step on the host."""

    step: int
    arrays: dict[str, Leaf]
    meta: Any
    metrics: dict[str, float]

    @property
    def ranked(self) -> Manifest:
        """What its manifest will say of its rank."""
        return Manifest(self.step, {name: v for name, v in self.metrics.items() if math.isfinite(v)}, {})


class Checkpoints:
    """The checkpoints in one folder; this process is the only one that writes it.

    Args:
        root: The folder; made if it is absent. A relative path is resolved here, once.
        keep_last, keep_best, metric, mode: As `Retention` has them.
        warn: Told when a checkpoint is damaged and an older one is used.

    Raises:
        CheckpointLocked: Another process writes here.
        CheckpointError: The folder can't be made or written.
    """

    def __init__(
        self, root: Path, *, keep_last: int = 2, keep_best: int = 1, metric: str | None = "loss", mode: str = "min",
        warn: Warn = log.warning,
    ) -> None:  # fmt: skip
        self.root = Path(root).resolve()
        self._blocked_s, self._written = 0.0, (0, 0.0, 0)
        self._retention, self._warn = Retention(keep_last, keep_best, metric, mode), warn
        self._pending: futures.Future[None] | None = None
        self._under_way: dict[int, Manifest] = {}
        self._held: list[_Snapshot] = []
        with _explained("the folder for checkpoints can't be used", self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = _only_writer(self.root)
        try:
            with _explained("the folder for checkpoints can't be used", self.root):
                self._kept = retention.scrub(self.root, warn)
        except BaseException:
            self._lock.release()
            raise
        self._writer = futures.ThreadPoolExecutor(1, "checkpoint")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except CheckpointError as lost:
            if error is None:
                raise
            error.add_note(f"besides, the last checkpoint failed: {lost}")

    def save(self, step: int, state: Any, *, meta: Any, metrics: Mapping[str, float] | None = None) -> float:  # noqa: ANN401
        """Starts to save a step and returns as soon as the state may change or be donated.

        Args:
            step: Above that of every checkpoint here.
            state: A pytree of jax arrays; typed PRNG keys are fine.
            meta: JSON: the iterator's state, early stopping, configuration, versions. Tuples come back as lists.
            metrics: By name; the one named at construction ranks the step.

        Returns:
            Seconds for which the caller was kept waiting.

        Raises:
            CheckpointError: This step is not above the newest, `meta` isn't JSON, or the *previous* save failed.
        """
        started = time.perf_counter()
        self.wait()
        written = [*self._held, self._snapshot(step, state, meta, metrics)]
        self._held = []
        self._under_way = {one.step: one.ranked for one in written}
        self._pending = self._writer.submit(self._write_all, started, written)
        blocked = time.perf_counter() - started
        self._blocked_s += blocked
        return blocked

    def hold(self, step: int, state: Any, *, meta: Any, metrics: Mapping[str, float]) -> None:  # noqa: ANN401
        """Copies a step to the host, to be written by the next `save` if it is still among the best then; as `save`."""
        started = time.perf_counter()
        self.check()
        held = [*self._held, self._snapshot(step, state, meta, metrics)]
        best = self._retention.ranked({**self._known(), **{one.step: one.ranked for one in held}})
        self._held = [one for one in held if one.step in best[: self._retention.best]]
        self._blocked_s += time.perf_counter() - started

    def _snapshot(self, step: int, state: Any, meta: Any, metrics: Mapping[str, float] | None) -> _Snapshot:  # noqa: ANN401
        check_int("step", step, 0)
        self._refuse_other_folder()
        known = [*self._kept, *(one.step for one in self._held)]
        if known and step <= (newest := max(known)):
            raise CheckpointError(
                f"step {step} can't be saved: steps only go up", checkpoint=self.root, got=step,
                expected=f"more than {newest}, the newest here", cure="go on from restore_latest()",
            )  # fmt: skip
        try:
            meta = json.loads(json.dumps(meta, allow_nan=False))
            scores = {name: float(value) for name, value in (metrics or {}).items()}
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                "meta is JSON, and metrics are numbers", checkpoint=self.root, step=step, got=error
            ) from error
        return _Snapshot(step, leaves.to_host(state), meta, scores)

    def _known(self) -> dict[int, Manifest]:
        return {**self._under_way, **self._kept, **{one.step: one.ranked for one in self._held}}

    def check(self) -> None:
        """Raises the error of a save that has failed by now; never waits. Cheap enough for every step."""
        if self._pending and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Returns when the save under way is committed.

        Raises:
            CheckpointError: It failed, with the path and the cause. Earlier checkpoints are as they were.
        """
        if self._pending:
            futures.wait([self._pending])  # a signal may interrupt this; the error must not get lost then
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for the save under way and lets the folder go; raises as `wait`."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()
            self._lock.release()

    @property
    def cost(self) -> Cost:
        """What saving has cost so far."""
        saves, written_s, size = self._written
        return Cost(saves, self._blocked_s, written_s, size)

    def steps(self) -> list[int]:
        """Committed steps, the newest last."""
        return sorted(self._kept)

    def would_be_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether a step with these metrics would be kept for them, whatever comes later."""
        return self._retention.would_be_best(self._known(), metrics)

    def best(self) -> int | None:
        """The committed step with the best metric; None if none has a finite one."""
        return next(iter(self._retention.ranked(self._kept)), None)

    def restore(self, step: int, abstract: Any) -> Restored:  # noqa: ANN401
        """This step and no other.

        Args:
            step: One of `steps()`.
            abstract: As `snapshot.read`.

        Raises:
            CheckpointCorrupt: It is damaged, or was and has been set aside.
            CheckpointMismatch: It is of another model or recipe.
            CheckpointError: There is no such step.
        """
        self.wait()
        if step not in self._kept:
            aside = [path for path in retention.damaged(self.root) if retention.damaged_step(path) == step]
            kind, got = (CheckpointCorrupt, "damaged, set aside") if aside else (CheckpointError, "no such step")
            raise kind(f"step {step} can't be restored", checkpoint=self.root, got=got, known=self.steps())
        state, meta, manifest = snapshot.read(self.root / str(step), abstract)
        return Restored(step, state, meta, manifest.metrics)

    def restore_latest(self, abstract: Any, check: Callable[[Any], object] = lambda meta: None) -> Restored | None:  # noqa: ANN401
        """The newest step that verifies, or None if nothing was ever saved; damaged ones are reported and set aside.

        Args:
            abstract: As `snapshot.read`.
            check: Raises CheckpointCorrupt if what `meta` refers to outside of the checkpoint isn't whole: the step is
                then as good as damaged.

        Raises:
            CheckpointCorrupt: There are checkpoints, but none verifies: starting over is not decided here.
            CheckpointMismatch: The newest sound step is of another model or recipe; older ones aren't tried.
        """
        self.wait()
        for step in reversed(self.steps()):
            try:
                restored = self.restore(step, abstract)
                check(restored.meta)
                return restored
            except CheckpointCorrupt as error:
                with _explained("a damaged checkpoint can't be set aside", self.root):
                    retention.set_aside(self.root / str(step), error, self._warn)
                self._kept = {other: kept for other, kept in self._kept.items() if other != step}
        if aside := retention.damaged(self.root):
            raise CheckpointCorrupt(
                "no checkpoint of this training verifies", checkpoint=self.root, got=", ".join(p.name for p in aside),
                cure="remove the folder to start this training over",
            )  # fmt: skip
        return None

    def _write_all(self, started: float, snapshots: list[_Snapshot]) -> None:
        for one in snapshots:
            self._write(started, one.step, one.arrays, one.meta, one.metrics)
            started = time.perf_counter()

    def _write(self, started: float, step: int, arrays: dict[str, Leaf], meta: Any, metrics: dict[str, float]) -> None:  # noqa: ANN401
        partial = self.root / f"{retention.SAVING}{step}-{uuid.uuid4().hex[:6]}"
        with _explained(f"step {step} couldn't be saved", self.root / str(step)):
            try:
                self._refuse_other_folder()
                manifest = snapshot.write(partial, step, arrays, meta, metrics)
                self._refuse_other_folder()
                partial.rename(self.root / str(step))
            except BaseException:
                retention.remove_attempt(partial)
                raise
            durable.fsync_dir(self.root)
        self._kept = {**self._kept, step: manifest}
        with _explained(f"step {step} is saved, but older ones can't be removed", self.root):
            self._kept = self._retention.retire(self.root, self._kept)
        saves, written_s, _ = self._written
        size = sum(size for size, _ in manifest.files.values())
        self._written = (saves + 1, written_s + time.perf_counter() - started, size)

    def _refuse_other_folder(self) -> None:
        if not self._lock.holds():
            raise CheckpointError(
                "the folder for checkpoints was closed, or removed or replaced while it was in use",
                checkpoint=self.root,
            )


def _only_writer(root: Path) -> Lock:
    held = Lock(root / ".lock")
    if held.acquire(blocking=False):
        return held
    pid = held.holder()
    raise CheckpointLocked(
        "another process writes these checkpoints", checkpoint=root, pid=pid or "unknown",
        cure="wait for it, or end it" if pid is None or Path("/proc", str(pid)).exists()
        else f"{pid} is gone, but a child that it forked holds on: end that",
    )  # fmt: skip


@contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:
        # Orbax wraps what went wrong, and calls a full disk a ValueError.
        cause = error.__cause__ or error
        raise CheckpointError(what, checkpoint=path, got=f"{type(cause).__name__}: {cause}") from error
