from __future__ import annotations

import pytest

from tasks.input_wait import InputWait


@pytest.fixture
def wait() -> InputWait:
    """Waits of 1, 2, 30 and 1 ms from step 100 on."""
    made = InputWait(100)
    for seconds in (0.001, 0.002, 0.030, 0.001):
        made.add(seconds)
    return made


def test_waits_add_up_and_the_greatest_is_named(wait: InputWait) -> None:
    assert wait.seconds == pytest.approx(0.034)
    assert wait.share(3.4) == pytest.approx(0.01)
    report = wait.report()
    assert report["median_ms"] == 1.5
    assert (report["greatest_ms"], report["greatest_at_step"]) == (30.0, 102)
    assert 2 < report["p99_ms"] <= 30


def test_nothing_happened_yet() -> None:
    assert InputWait(0).report() == {}
    assert InputWait(0).share(0.0) is None
    assert InputWait(0).warning(0.0, augmented=False) is None


@pytest.mark.parametrize(("waited", "seconds", "warned"), [(6.0, 100.0, True), (4.9, 100.0, False), (0.9, 1.0, False)])
def test_a_warning_above_five_percent_names_the_cure(waited: float, seconds: float, warned: bool) -> None:
    wait = InputWait(0)
    wait.add(waited / 2)
    wait.add(waited / 2)
    text = wait.warning(seconds, augmented=False)
    assert (text is not None) == warned
    if text is not None:
        assert "6% of the training" in text
        assert "--refresh feed" in text
        assert "--batch-size" in text
        assert "augment" not in text
        assert "augment" in str(wait.warning(seconds, augmented=True))
