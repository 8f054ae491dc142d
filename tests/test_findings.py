from __future__ import annotations

from typing import Any

import estimates
import pytest
import toy

from datasets.errors import SchemaError, SplitError
from datasets.schema import Validation
from tasks.findings import findings, settle


def report(**changes: Any) -> dict[str, Any]:
    counts = {"circle": 5, "cross": 5, "ring": 5}
    made = {
        "splits": {"train": {"classes": {"label": counts}}, "test": {"classes": {"label": counts}}},
        "duplicates": {
            "within": {"train": 0, "test": 0}, "across": {"train/test": 0}, "conflicting": 0, "examples": [],
        },
        "drift": {"against": None, "features": {}},
    }  # fmt: skip
    return {**made, **changes}


def drift(distance: float, limit: float | None) -> dict[str, Any]:
    row = {"distance": distance, "limit": limit, "measure": "Jensen-Shannon", "component": 3}
    return {"against": {"records": "0123456789abcdef"}, "features": {"x": row, "y": {"skipped": "time goes on"}}}


def test_sound_data_gives_no_finding() -> None:
    assert findings(toy.dataset(), report()) == []
    assert findings(toy.dataset(), report(drift=drift(0.25, 0.25))) == []
    assert findings(toy.dataset(), report(drift=drift(1.0, None))) == []


def test_the_first_error_is_raised_and_names_the_others(said: pytest.LogCaptureFixture) -> None:
    duplicates = {"within": {"train": 2, "test": 0}, "across": {"train/test": 3}, "conflicting": 0, "examples": []}
    rows = findings(toy.dataset(), report(duplicates=duplicates, drift=drift(0.3, 0.25)))
    assert [(row["kind"], row["severity"]) for row in rows] == [
        ("leaks", "error"), ("drift", "error"), ("repeats", "warn"),
    ]  # fmt: skip
    with pytest.raises(SplitError, match="3 records of 'test' are duplicates across train/test") as caught:
        settle(rows)
    assert "'x' has drifted" in caught.value.facts["also_wrong"]
    assert 'leaks="warn"' in str(caught.value.cure)
    assert "2 records of 'train' repeat" in said.text


def test_warnings_alone_end_nothing(said: pytest.LogCaptureFixture) -> None:
    policy = Validation(on_drift="warn")
    settle(findings(toy.dataset(validation=policy), report(drift=drift(0.3, 0.25))))
    assert "'x' has drifted" in said.text


def test_drift_says_how_far_and_where() -> None:
    with pytest.raises(SchemaError) as caught:
        settle(findings(toy.dataset(), report(drift=drift(0.3, 0.25))))
    facts = caught.value.facts
    assert (facts["field"], facts["component"], facts["expected"]) == ("x", 3, "at most 0.25")
    assert (facts["got"], facts["against"]) == ("Jensen-Shannon distance 0.3000", "records 0123456789ab")


def test_a_class_of_another_split_only_is_named_and_can_not_be_a_warning() -> None:
    train, test = {"circle": 5, "cross": 0, "ring": 5}, {"circle": 5, "cross": 2, "ring": 0}
    splits = {"train": {"classes": {"label": train}}, "test": {"classes": {"label": test}}}
    rows = findings(toy.dataset(validation=Validation(missing_classes="error")), report(splits=splits))
    assert [row["severity"] for row in rows] == ["error", "error"]
    with pytest.raises(SplitError, match="no example of a class") as caught:
        settle(rows)
    assert caught.value.facts["classes"] == "cross"
    assert caught.value.facts["elsewhere"] == "cross in test only"
    assert "'test' has no example of ring" in caught.value.facts["also_wrong"]


def test_a_number_that_never_changes_can_not_be_learned() -> None:
    def splits(low: float, high: float) -> dict[str, Any]:
        one = {"classes": {"storey": {"low": 3, "high": 3}}, "features": {"price": {"min": low, "max": high}}}
        return {"train": one, "test": one}

    assert findings(estimates.dataset(), report(splits=splits(1.0, 2.0))) == []
    with pytest.raises(SchemaError, match="the same number in all examples of the train split") as caught:
        settle(findings(estimates.dataset(), report(splits=splits(7.5, 7.5))))
    assert (caught.value.facts["field"], caught.value.facts["got"]) == ("price", 7.5)
