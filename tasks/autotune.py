"""Which settings of the feed are fastest here: measured within a time budget, chosen by a rule that is written down.

What decides is the time that the whole training would wait for its input: seconds to the first batch, plus the examples
of all its steps at the measured rate. Of the settings within 5 % or one second of the least, the one with the fewest
moving parts is taken: a difference that small is noise, and threads take cores from the step.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # Grain loads JAX, which a plan must not
    from tasks.batches import Batches


HEAVY_MS = 2.0  # of one batch, made in this process; below it a worker's hand-over costs more than it brings
SLACK, SLACK_SECONDS = 1.05, 1.0
ROUNDS = 3
_START = 5.0  # seconds that workers may take to start, as far as is known before some did
_GRAINS = "grain-prefetch"  # how the names of Grain's threads begin


class Reading(TypedDict):
    """How many read threads, batches ahead and worker processes."""

    threads: int
    prefetch: int
    workers: int


@dataclass(frozen=True)
class Setting:
    """How batches are made ahead of time; never which batches.

    Attributes:
        threads: Read threads; 0 makes a batch in the training loop's own thread, when it is asked for.
        prefetch: Batches that are made ahead.
        workers: Worker processes, at low priority.
        resident: Whether the split stays on the device.
    """

    threads: int = 0
    prefetch: int = 0
    workers: int = 0
    resident: bool = False

    @property
    def reading(self) -> Reading:
        """What `Pipeline.iterate` and `Batches` take."""
        return {"threads": self.threads, "prefetch": self.prefetch, "workers": self.workers}

    @property
    def ahead(self) -> int:
        """Batches that may be made before the first one is taken, besides it."""
        return self.workers * (self.prefetch + 1) if self.workers else self.threads + self.prefetch

    def __str__(self) -> str:
        if self.resident:
            return "resident"
        return f"{self.workers} workers" if self.workers else f"{self.threads} threads"


IN_PROCESS = (Setting(), *(Setting(threads=n, prefetch=2 * n) for n in (1, 2, 4, 16)))
RESIDENT = Setting(resident=True)


def worker_settings() -> tuple[Setting, ...]:
    """1, 2 and as many workers as this process has cores."""
    return tuple(Setting(prefetch=2, workers=n) for n in sorted({1, 2, len(os.sched_getaffinity(0))}))


@dataclass(frozen=True)
class Trial:
    """What one setting came to.

    Attributes:
        setting: That was tried, or not.
        rate: Examples a second once it runs, in the best round: others were slower because something disturbed them.
            None if it wasn't tried.
        start: Seconds to its first batch, in the best round.
        total: Seconds that the whole training would spend on input.
        why: It was not tried, or chosen.
    """

    setting: Setting
    rate: float | None = None
    start: float | None = None
    total: float | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """As in `plan.json`."""
        row = {"examples_per_second": self.rate, "start_seconds": self.start, "training_seconds": self.total}
        return {**asdict(self.setting), **row, "why": self.why}


def tune(
    settings: Sequence[Setting], open_batches: Callable[[Setting], Batches], take: Callable[[int, Any], None], *,
    batch_size: int, steps: int, budget: float, seconds: float = 0.12,
    done: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:  # fmt: skip
    """Tries settings one after the other, several rounds, so that a disturbance of the machine hits all of them.

    Args:
        settings: The simplest first; those with workers are tried only where a batch is heavy enough.
        open_batches: Gives the batches of a setting, from the first step on.
        take: Does with a batch, given its number, what training does before its step.
        batch_size: Examples of a batch.
        steps: Of the whole training.
        budget: Seconds; but for the first setting, what may not be done before they are over isn't tried: it has to
            make what it keeps ahead, two batches, and what its threads begin meanwhile. How long workers take to start
            is known once one has.
        seconds: Of a measurement in this process; workers get ten times as many.
        done: Called with each finished trial.

    Returns:
        A trial for each setting, in the same order.
    """
    clock = _Budget(budget)
    samples: dict[Setting, list[tuple[float, float]]] = {setting: [] for setting in settings}

    def measure(setting: Setting, seconds: float) -> None:
        with clock.spent_on(setting):
            samples[setting].append(_measure(open_batches(setting), take, batch_size, seconds, setting.ahead))

    batch = 0.0  # seconds, in the setting that was fastest until now
    for _ in range(ROUNDS):
        for setting in settings:
            first = not samples[settings[0]]
            if not setting.workers and (first or clock.allows(setting, (setting.ahead + setting.threads + 2) * batch)):
                measure(setting, seconds)
                batch = batch_size / max(rate for some in samples.values() for _, rate in some)
    alone = [rate for setting in settings if not setting.threads for _, rate in samples[setting]]
    cost = 1000 * batch_size / max(alone)
    why = {}
    for setting in settings:
        over = f"not tried: it may take more than what is left of the {budget:g} s for measuring"
        if not setting.workers:
            why[setting] = over
        elif cost <= HEAVY_MS:
            why[setting] = f"not tried: a batch takes {cost:.2g} ms, workers pay above {HEAVY_MS:g} ms"
        elif clock.allows(
            setting, (clock.longest(lambda other: other.workers > 0) or _START) + (setting.ahead + 2) * cost / 1000
        ):
            measure(setting, 10 * seconds)
        else:
            why[setting] = over
    trials = [
        _trial(setting, samples[setting], batch_size * steps) if samples[setting] else Trial(setting, why=why[setting])
        for setting in settings
    ]
    for trial in trials:
        done(trial)
    return trials


class _Budget:
    """Time for measuring, and what measurements took of it."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.perf_counter() + seconds
        self._took: dict[Setting, float] = {}

    @contextmanager
    def spent_on(self, setting: Setting) -> Iterator[None]:
        """Times a measurement, to the end of its threads: a closed iterator's go on to the end of their batches."""
        began, running = time.perf_counter(), set(threading.enumerate())
        yield
        for thread in set(threading.enumerate()) - running:
            if thread.name.startswith(_GRAINS):
                thread.join(max(0.0, self._deadline - time.perf_counter()))
        self._took[setting] = time.perf_counter() - began

    def allows(self, setting: Setting, guess: float) -> bool:
        """Whether a setting can be measured in what is left: by what it took before, else by a guess in seconds."""
        return time.perf_counter() + self._took.get(setting, guess) < self._deadline

    def longest(self, which: Callable[[Setting], bool]) -> float:
        """Seconds of the longest measurement of such a setting; 0 if there was none."""
        return max((took for setting, took in self._took.items() if which(setting)), default=0.0)


def choose(trials: Sequence[Trial]) -> int:
    """Index of the trial to take: the first that is close to the least total; settings are listed simplest first."""
    least = min(trial.total for trial in trials if trial.total is not None)
    enough = max(SLACK * least, least + SLACK_SECONDS)
    return next(i for i, trial in enumerate(trials) if trial.total is not None and trial.total <= enough)


def _trial(setting: Setting, samples: list[tuple[float, float]], examples: int) -> Trial:
    start, rate = min(start for start, _ in samples), max(rate for _, rate in samples)
    return Trial(setting, rate, start, start + examples / rate)


def _measure(
    opened: Batches, take: Callable[[int, Any], None], batch_size: int, seconds: float, ahead: int = 0
) -> tuple[float, float]:
    """Seconds to the first batch, and examples a second from then on.

    Those that may be ready when the first one comes aren't counted: with many threads they come all at once, however
    long each took. Where there are no others, the start is 0 and the rate that of all batches.
    """
    began, number = time.perf_counter(), 0
    with opened as batches:
        take(0, next(batches))
        first = since = time.perf_counter()
        for number, batch in enumerate(batches, 1):
            take(number, batch)
            if number <= ahead:
                since = time.perf_counter()
            elif time.perf_counter() - since > seconds:
                break
        ended = time.perf_counter()
    if number <= ahead:
        return 0.0, (number + 1) * batch_size / (ended - began)
    return first - began, (number - ahead) * batch_size / (ended - since)
