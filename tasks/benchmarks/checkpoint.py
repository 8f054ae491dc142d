"""What checkpoints cost: how long a save holds a training up, what it writes, how soon a resumed training steps.

The bundled digits with the model of their recipe. Rounds are paired: steps without a save and then with one, a fresh
start and then a resumed one, so that the noise of a shared machine hits both.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tasks.artifact import Artifact, Store
from tasks.autotune import Setting
from tasks.benchmark import Measure, paired
from tasks.carry import Carry
from tasks.checkpoint import Checkpoints
from tasks.compiled import use_compilation_cache
from tasks.convert import convert_raw
from tasks.fetch import fetch_raw, prepared
from tasks.metric_log import MetricLog, read_until
from tasks.stage import Job
from tasks.training import METRICS, SAVE_SECONDS, Training

ROUNDS = 5
STEPS = 20


def run(model: str | None = None, rounds: int = ROUNDS, steps: int = STEPS) -> list[Measure]:
    """All measures; about a minute on two idle cores.

    Args:
        model: Of the training; the recipe's if None.
        rounds: Pairs of each measurement.
        steps: Of one stretch of training.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-checkpoint-") as folder:
        bench = Bench(Path(folder), model)
        stretches = [bench.stretches(steps) for _ in range(rounds)]
        starts = [(bench.start_up(resume=True), bench.start_up(resume=False)) for _ in range(rounds)]
        return [*bench.saving(stretches), *bench.starting(starts)]


class Bench:
    """A training of the bundled digits that is stepped by hand.

    Attributes:
        folder: Of its checkpoints.
    """

    def __init__(self, root: Path, model: str | None) -> None:
        request = prepared("mnist", store=root, model=model)
        self._job = Job("fit", "checkpoint", {}, request, Store(root))
        use_compilation_cache(root)
        raw = fetch_raw(self._made("fetch"))
        self._records: Artifact = convert_raw(self._made("convert"), raw=raw)
        self.folder = root / "checkpoints"
        self._training = self._open()
        with self._training.pipeline.iterate(0, 1) as batches:
            self._batch = next(iter(batches))
        self._carry: Carry = self._training.step.initial_carry()
        self._at = 0
        self._blocked: list[float] = []
        self._written: list[float] = []
        self.bytes = 0

    def _made(self, stage: str) -> Job:
        return Job(stage, stage, {}, self._job.request, self._job.store)

    def _open(self) -> Training:
        return Training(self._job, self._records, Setting(), self.folder)

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self._carry, _ = self._training.step(self._carry, self._batch)
        self._at += count
        jax.block_until_ready(self._carry.step)

    def _meta(self, at: int, log: MetricLog) -> dict[str, Any]:
        return {"pipeline": self._training.pipeline.state(at), "metrics": log.sync()}

    def stretches(self, steps: int) -> tuple[float, float]:
        """CPU seconds of a stretch with a save at its start, the writing included, and of one without.

        Of the whole process, because seconds of the clock say more about the neighbours on a shared machine.
        """
        log = MetricLog(self.folder / METRICS, None) if self.folder.exists() else None
        with Checkpoints(self.folder, metric=None, keep_best=0) as checkpoints:
            log = log or MetricLog(self.folder / METRICS, None)
            log.append({"step": at, "loss": 1.0} for at in range(steps))
            self._steps(2)
            started = time.process_time()
            self._steps(steps)
            without = time.process_time() - started
            started = time.process_time()
            checkpoints.save(self._at, self._carry, meta=self._meta(self._at, log))
            self._steps(steps)
            checkpoints.wait()
            held = time.process_time() - started
            self._blocked.append(checkpoints.cost.blocked_s)
            self._written.append(checkpoints.cost.written_s)
            self.bytes = checkpoints.cost.bytes
        log.close()
        return held, without

    def start_up(self, *, resume: bool) -> float:
        """Seconds from nothing to the end of a first step; programs come from the compilation cache."""
        jax.clear_caches()
        started = time.perf_counter()
        training, at = self._open(), 0
        carry = None
        if resume:
            with Checkpoints(self.folder, metric=None, keep_best=0) as checkpoints:
                restored = checkpoints.restore_latest(
                    training.step.abstract_carry(),
                    check=lambda meta: read_until(self.folder / METRICS, meta["metrics"]),
                )
                assert restored is not None  # noqa: S101 - `stretches` saved it
                carry, at = restored.state, training.pipeline.restore(restored.meta["pipeline"])
        carry = carry or training.step.initial_carry()
        with training.pipeline.iterate(at, at + 1) as batches:
            carry, _ = training.step(carry, next(iter(batches)))
        jax.block_until_ready(carry.step)
        return time.perf_counter() - started

    def saving(self, stretches: list[tuple[float, float]]) -> list[Measure]:
        """What a save costs, by itself and as a share of the default interval."""
        interval = [SAVE_SECONDS] * len(stretches)
        return [
            paired("state on disk", "MB", [self.bytes / 1e6]),
            paired("a save until the training goes on", "ms", [1e3 * s for s in self._blocked]),
            paired("a save until it is committed", "ms", [1e3 * s for s in self._written]),
            paired("blocked by saves", "s", self._blocked, interval, against="default interval", goal="< 0.05"),
            paired("CPU time of a save", "ms", [1e3 * (held - without) for held, without in stretches]),
        ]

    def starting(self, starts: list[tuple[float, float]]) -> list[Measure]:
        """How much longer a resumed training takes to its first step."""
        resumed, fresh = np.array(starts).T.tolist()
        return [paired("resume until the first step is done", "s", resumed, fresh, against="fresh start", goal="<= 2")]
