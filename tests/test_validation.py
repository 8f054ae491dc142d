from __future__ import annotations

from typing import Any

import pytest

from datasets.errors import ParameterError, SchemaError, UnknownNameError
from datasets.mnist import DATASET
from datasets.schema import Validation


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [("on_bad", "quarantin", "quarantine"), ("leaks", "warning", "warn"), ("conflicts", "eror", "error"),
     ("repeats", None, None), ("missing_classes", "ignore", None), ("on_drift", "", None)],
)  # fmt: skip
def test_policies_that_are_not_known(name: str, value: Any, nearest: str | None) -> None:
    with pytest.raises(UnknownNameError, match=name) as caught:
        Validation(**{name: value})
    assert nearest is None or nearest in str(caught.value.cure)


@pytest.mark.parametrize(
    "change",
    [{"most_bad": 1.0}, {"most_bad": -0.1}, {"most_bad": float("nan")}, {"drift": {"x": 1.5}}, {"drift": {"x": True}},
     {"drift": 0.1}, {"most_drift": -1.0}],
)  # fmt: skip
def test_limits_that_can_not_work(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Validation(**change)


def test_it_is_strict_unless_told_otherwise() -> None:
    made = Validation()
    assert (made.on_bad, made.leaks, made.on_drift) == ("fail", "error", "error")
    assert Validation(drift={"x": 1.0}, most_drift=None).drift == {"x": 1.0}


def test_drift_of_a_feature_that_does_not_exist() -> None:
    from dataclasses import replace

    with pytest.raises(SchemaError, match="drift of a feature that isn't declared") as caught:
        replace(DATASET, validation=Validation(drift={"x": 0.1}))
    assert caught.value.facts["field"] == "x"
