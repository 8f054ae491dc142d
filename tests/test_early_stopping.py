from __future__ import annotations

import json

import pytest

from tasks.early_stopping import EarlyStopping


def ends_at(patience: int | None, losses: list[float]) -> int | None:
    stopping = EarlyStopping(patience)
    for number, loss in enumerate(losses):
        stopping.see(loss)
        if stopping.over:
            return number
    return None


@pytest.mark.parametrize(
    ("patience", "losses", "end"),
    [
        (1, [3, 2, 1], None),
        (1, [3, 2, 2], 2),
        (2, [3, 2, 2.5, 2.1, 1], 3),
        (2, [3, 2, 2.5, 1.9, 2, 1.8], None),
        (3, [1, 2, 3, 4], 3),
        (None, [1, 2, 3, 4, 5, 6], None),
    ],
)
def test_it_ends_after_so_many_evaluations_without_a_lower_loss(
    patience: int | None, losses: list[float], end: int | None
) -> None:
    assert ends_at(patience, losses) == end


@pytest.mark.parametrize("cut", range(6))
def test_it_goes_on_from_its_state(cut: int) -> None:
    losses = [3.0, 2.0, 2.5, 1.5, 1.6, 1.7]
    stopping = EarlyStopping(2)
    for loss in losses[:cut]:
        stopping.see(loss)
    resumed = EarlyStopping(2, json.loads(json.dumps(stopping.state())))
    for loss in losses[cut:]:
        assert not resumed.over
        resumed.see(loss)
    assert resumed.over
    assert resumed.state() == {"lowest": 1.5, "since": 2}


def test_it_does_not_begin_over() -> None:
    assert not EarlyStopping(1).over
    assert EarlyStopping(None).state() == {"lowest": None, "since": 0}
