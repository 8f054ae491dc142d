from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from datasets.gate import Gate
from datasets.schema import Rows
from datasets.splits import ByFraction
from tasks.artifact import Store
from tasks.choose import choose, score_validation, validation_split

SPLITS = {"train": Rows(0, 60), "val": Rows(60, 90), "test": Rows(90, 120)}


def test_the_split_to_choose_on_is_found_by_its_name() -> None:
    assert validation_split(toy.dataset(splits=SPLITS)) == "val"
    assert validation_split(toy.dataset(splits=ByFraction({"train": 0.8, "validation": 0.1, "test": 0.1}))) == (
        "validation"
    )
    assert validation_split(toy.dataset()) is None


@pytest.mark.parametrize(("metric", "expected"), [("accuracy", 0.8), ("loss", None)])
def test_the_score_is_that_of_the_validation_split_alone(tmp_path: Path, metric: str, expected: float | None) -> None:
    request = toy.table_request(tmp_path, splits=SPLITS, gate=Gate(metric=metric))
    records = toy.records_of(request)
    truth = np.arange(60) % len(toy.CLASSES)
    said = np.where(np.arange(60) % 5 == 0, (truth + 1) % len(toy.CLASSES), truth)
    # Rows 60 to 89 of the raw data are examples 0 to 29 of the one-hot rows; the others are answered wrongly
    said[30:] = (truth[30:] + 1) % len(toy.CLASSES)
    weights = toy.weights_that_say(request, said, "w1")
    made = score_validation(toy.job(request, "choose"), records, weights)
    facts = Store(tmp_path).facts(made)
    assert (facts["split"], facts["examples"], facts["weights"]) == ("val", 30, weights.digest)
    right, wrong = -5 + np.log(np.exp(5) + 2), np.log(np.exp(5) + 2)
    wanted = expected if expected is not None else (24 * right + 6 * wrong) / 30
    assert facts[metric] == pytest.approx(wanted, rel=1e-5)


def test_what_decides_the_score_is_in_its_key(tmp_path: Path) -> None:
    request = toy.table_request(tmp_path, splits=SPLITS)
    parts = toy.key_parts(choose, request)
    changed = replace(request, dataset=replace(request.dataset, gate=Gate(metric="loss")))
    assert toy.key_parts(choose, changed) != parts
    assert parts["split"] == "val"
