from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tasks.checkpoint import Checkpoints, Cost
from tasks.metric_log import MetricLog
from tasks.silent import NoCheckpoints, NoLog


@pytest.mark.parametrize(("silent", "real"), [(NoCheckpoints, Checkpoints), (NoLog, MetricLog)])
def test_it_takes_what_the_real_one_takes(silent: type, real: type) -> None:
    names = [name for name, value in vars(silent).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert names
    for name in names:
        assert list(inspect.signature(getattr(silent, name)).parameters.values()) == list(
            inspect.signature(getattr(real, name)).parameters.values()
        )


def test_nothing_is_written_or_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with NoCheckpoints() as checkpoints:
        assert checkpoints.save(3, {}, meta={}) == 0.0
        assert checkpoints.would_be_best({"test_loss": 0.0}) is False
        assert checkpoints.cost == Cost()
    log = NoLog()
    log.append([{"step": 1}])
    assert log.sync() == {}
    assert not list(tmp_path.iterdir())
