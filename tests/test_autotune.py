from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import pytest

from tasks import autotune
from tasks.autotune import IN_PROCESS, RESIDENT, Setting, Trial, choose, tune, worker_settings
from tasks.batches import Batches


def opener(seen: list[Setting], length: int = 40, cost: float = 0.0) -> Callable[[Setting], Batches]:
    """Batches in this process, whatever the setting says; each takes `cost` seconds."""

    def make(step: int) -> dict[str, np.ndarray]:
        time.sleep(cost)
        return {"id": np.array([step])}

    def opened(setting: Setting) -> Batches:
        seen.append(setting)
        return Batches(grain.MapDataset.range(length).map(make))

    return opened


def tried(cost: float, settings: tuple[Setting, ...], **options: Any) -> tuple[list[Setting], list[Trial]]:
    seen: list[Setting] = []
    options = {"batch_size": 8, "steps": 100, "budget": 60.0, "seconds": 0.02, **options}
    return seen, tune(settings, opener(seen, cost=cost), lambda step, batch: None, **options)


def test_light_batches_are_never_given_to_workers() -> None:
    settings = (Setting(), Setting(workers=1))
    seen, trials = tried(0.0, settings)
    assert seen == [Setting()] * autotune.ROUNDS
    assert [trial.setting for trial in trials] == list(settings)
    assert trials[1].rate is None
    assert "workers pay above 2 ms" in trials[1].why
    assert trials[1].to_json()["training_seconds"] is None


def test_heavy_batches_are() -> None:
    seen, trials = tried(0.004, (Setting(), Setting(workers=1)))
    assert seen == [*[Setting()] * autotune.ROUNDS, Setting(workers=1)]
    assert trials[1].rate is not None
    assert trials[0].rate is not None
    assert trials[0].rate < 8 / 0.004  # examples a second, not batches


def test_rounds_go_over_all_settings_so_that_noise_hits_each() -> None:
    assert tried(0.0, IN_PROCESS)[0] == list(IN_PROCESS) * autotune.ROUNDS


def test_when_the_budget_is_spent_only_the_simplest_setting_was_tried() -> None:
    seen, trials = tried(0.003, (*IN_PROCESS, Setting(workers=1)), budget=0.0)
    assert seen == [Setting()]
    assert trials[0].rate
    assert all("what is left of the 0 s" in trial.why for trial in trials[1:])
    assert choose(trials) == 0


def test_a_measurement_is_over_when_its_threads_are() -> None:
    made: list[float] = []

    def make(step: int) -> dict[str, np.ndarray]:
        time.sleep(0.05)
        made.append(time.perf_counter())
        return {"id": np.array([step])}

    asked: list[float] = []

    def opened(setting: Setting) -> Batches:
        asked.append(time.perf_counter())
        return Batches(grain.MapDataset.range(1000).map(make), **setting.reading)

    threads = Setting(threads=4, prefetch=8)
    tune([threads, Setting()], opened, lambda step, batch: None, batch_size=8, steps=9, budget=9.0, seconds=0.01)
    assert len(asked) == 2 * autotune.ROUNDS
    # Before the next setting is opened nobody works any more, so between its opening and its first batch lie 0.05 s.
    assert all(min(at for at in made if at > opening) - opening > 0.049 for opening in asked)


class Clock:
    """Time passes only by what measurements take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batch: float, start: float = 0.0) -> None:
        self.now, self.seen = 0.0, list[Setting]()
        monkeypatch.setattr(autotune.time, "perf_counter", lambda: self.now)

        def measure(setting: Setting, *given: Any) -> tuple[float, float]:
            assert given[-1] == setting.ahead
            self.seen.append(setting)
            self.now += start + 2 * batch if setting.workers else batch * (4 * setting.threads or 2)
            return batch, 8 / batch

        monkeypatch.setattr(autotune, "_measure", measure)

    def tune(self) -> list[Trial]:
        settings = (*IN_PROCESS, Setting(workers=1), Setting(workers=2))
        made: Any = lambda setting: setting  # noqa: E731
        return tune(settings, made, lambda step, batch: None, batch_size=8, steps=9, budget=20.0)


@pytest.mark.parametrize(("batch", "threads"), [(0.1, [0, 1, 2, 4, 16]), (1.0, [0, 1, 2]), (2.0, [0, 1]), (30.0, [0])])
def test_what_would_outlast_the_budget_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, batch: float, threads: list[int]
) -> None:
    clock = Clock(monkeypatch, batch)
    trials = clock.tune()
    assert sorted({setting.threads for setting in clock.seen}) == threads
    assert clock.now <= max(20.0, 2 * batch)
    assert all(trial.rate or "not tried" in trial.why for trial in trials)


def test_a_second_setting_with_workers_needs_the_time_that_the_first_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, batch=0.01, start=8.0)
    trials = clock.tune()
    assert [bool(trial.rate) for trial in trials] == [True] * 5 + [True, True]
    clock = Clock(monkeypatch, batch=0.01, start=12.0)
    trials = clock.tune()
    assert [bool(trial.rate) for trial in trials] == [True] * 5 + [True, False]
    assert clock.now < 20
    clock = Clock(monkeypatch, batch=0.35, start=0.5)  # what threads took left less than workers may need
    assert [bool(trial.rate) for trial in clock.tune()][5:] == [False, False]


def test_the_total_counts_the_start_and_all_steps() -> None:
    trial = autotune._trial(Setting(), [(3.0, 50.0), (1.0, 100.0), (2.0, 80.0)], 1000)
    assert (trial.start, trial.rate, trial.total) == (1.0, 100.0, 11.0)


def test_every_batch_is_taken_once_with_its_number() -> None:
    taken: list[tuple[int, int]] = []
    seen: list[Setting] = []
    tune(
        [Setting()], opener(seen, length=5), lambda step, batch: taken.append((step, int(batch["id"][0]))),
        batch_size=8, steps=5, budget=0.0,
    )  # fmt: skip
    assert taken == [(step, step) for step in range(5)]


def test_batches_that_were_ready_with_the_first_one_are_not_counted() -> None:
    threads = Setting(threads=4, prefetch=8)
    assert threads.ahead == 12
    assert Setting(workers=2, prefetch=2).ahead == 6

    def make(step: int) -> dict[str, np.ndarray]:
        time.sleep(0.02 if step == 0 or step > threads.ahead else 0)
        return {"id": np.array([step])}

    def measured(length: int) -> tuple[float, float]:
        batches = Batches(grain.MapDataset.range(length).map(make))
        return autotune._measure(batches, lambda step, batch: None, 8, 0.05, threads.ahead)

    start, rate = measured(100)
    assert start >= 0.02
    assert rate <= 8 / 0.02
    assert measured(10)[0] == 0.0  # it's over before: what counts is how long all ten took
    assert measured(10)[1] <= 80 / 0.02


def test_a_training_of_one_step_is_measured_by_it() -> None:
    seen: list[Setting] = []
    (trial,) = tune([Setting()], opener(seen, 1, 0.01), lambda s, b: None, batch_size=8, steps=1, budget=0.0)
    assert trial.rate is not None
    assert 0 < trial.rate < 8 / 0.01


@pytest.mark.parametrize(
    ("totals", "chosen"),
    [
        ([100.0, 200.0], 0),
        ([200.0, 100.0], 1),
        ([105.0, 100.0], 0),
        ([106.0, 100.0], 1),
        ([None, 300.0, 100.0], 2),
        ([300.0, None], 0),
        ([1.9, 1.0], 0),
        ([2.1, 1.0], 1),
    ],
)
def test_the_simplest_within_five_percent_or_a_second_is_chosen(totals: list[float | None], chosen: int) -> None:
    assert choose([Trial(Setting(), total=total) for total in totals]) == chosen


def test_a_long_training_pays_for_the_start_of_workers_and_a_short_one_does_not() -> None:
    def trials(examples: int) -> list[Trial]:
        quick, slow = [(0.0, 100.0)], [(9.0, 200.0)]
        return [autotune._trial(Setting(), quick, examples), autotune._trial(Setting(workers=1), slow, examples)]

    assert choose(trials(1000)) == 0
    assert choose(trials(10_000)) == 1


def test_settings_are_listed_simplest_first_and_say_what_they_are() -> None:
    assert [str(setting) for setting in IN_PROCESS] == [f"{n} threads" for n in (0, 1, 2, 4, 16)]
    assert all(setting.prefetch >= setting.threads for setting in IN_PROCESS)
    assert str(RESIDENT) == "resident"
    assert [s.workers for s in worker_settings()] == sorted({s.workers for s in worker_settings()})
    assert set(worker_settings()[0].reading) == {"threads", "prefetch", "workers"}
