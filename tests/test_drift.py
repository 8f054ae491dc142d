from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from datasets.schema import ByTime, Feature, Validation
from tasks.drift import distances, jensen_shannon, layout_of
from tasks.statistics import FeatureStatistics

FEATURES = {"x": Feature("float32", (3,)), "day": Feature("int64"), "label": Feature("int32", classes=("a", "b"))}


def statistics(shift: float = 0.0, ones: int = 200) -> dict[str, FeatureStatistics]:
    x = np.random.default_rng(0).normal(size=(1000, 3))
    x[:, 1] += shift
    columns = {"x": x.astype(np.float32), "day": np.arange(1000), "label": (np.arange(1000) < ones).astype(np.int32)}
    made = {name: FeatureStatistics(feature) for name, feature in FEATURES.items()}
    for name, column in columns.items():
        made[name].add(column)
    return made


def dataset(**changes: Any) -> Any:
    return toy.dataset(**{"features": FEATURES, "inputs": "x", **changes})


def report(made: dict[str, FeatureStatistics], ones: int = 200) -> dict[str, Any]:
    return {
        "layout": layout_of(dataset()),
        "splits": {"train": {"features": {name: one.to_json() for name, one in made.items()},
                             "classes": {"label": {"a": 1000 - ones, "b": ones}}}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [([0.5, 0.5], [0.5, 0.5], 0.0), ([1, 0], [0, 1], 1.0), ([0.5, 0.5], [1.0, 0.0], 0.311278), ([1], [1], 0.0)],
)
def test_jensen_shannon(one: list[float], other: list[float], expected: float) -> None:
    assert jensen_shannon(one, other) == pytest.approx(expected, abs=1e-6)
    assert jensen_shannon(other, one) == pytest.approx(expected, abs=1e-6)


def test_equal_data_has_no_distance() -> None:
    found = distances(dataset(), report(statistics()), statistics())
    assert {name: row["distance"] for name, row in found.items()} == {"x": 0.0, "day": 0.0, "label": 0.0}
    assert found["label"]["measure"] == "L-infinity"


def test_the_component_that_moved_is_named_and_each_feature_has_its_limit() -> None:
    limits = Validation(drift={"label": 0.01}, most_drift=0.5)
    found = distances(dataset(validation=limits), report(statistics()), statistics(shift=1.0, ones=350))
    assert found["x"]["component"] == 1
    assert 0.1 < found["x"]["distance"] < 0.5
    assert found["label"]["distance"] == pytest.approx(0.15)
    assert {name: row["limit"] for name, row in found.items()} == {"x": 0.5, "day": 0.5, "label": 0.01}


def test_what_has_another_layout_or_is_time_is_not_compared() -> None:
    later = ByTime("day", {"train": (None, 3), "test": (3, None)})
    assert distances(dataset(splits=later), report(statistics()), statistics())["day"] == {"skipped": "time goes on"}
    asked = dataset(splits=later, validation=Validation(drift={"day": 0.1}))
    assert distances(asked, report(statistics()), statistics())["day"]["distance"] == 0
    classes = {**FEATURES, "label": replace(FEATURES["label"], classes=("b", "a"))}
    found = distances(dataset(features=classes), report(statistics()), statistics())
    assert "other classes" in found["label"]["skipped"]
    assert "distance" in found["x"]
