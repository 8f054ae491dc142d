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


def test_when_the_budget_is_spent_each_setting_in_this_process_was_tried_once() -> None:
    seen, trials = tried(0.003, (*IN_PROCESS, Setting(workers=1)), budget=0.0)
    assert seen == list(IN_PROCESS)
    assert all(trial.rate for trial in trials[:-1])
    assert "were over" in trials[-1].why


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
