from __future__ import annotations

import re
from pathlib import Path

import toy

from datasets.schema import Rows, Validation
from tasks.artifact import Store
from tasks.durable import read_json
from tasks.validate import PAGE, REPORT, validate_records


def test_the_page_says_all_of_a_report(tmp_path: Path) -> None:
    columns = toy.pictures()
    for column in columns.values():
        column[160] = column[10]
    made = toy.dataset(
        read=toy.reader_of(columns), splits={"train": Rows(0, 140), "test": Rows(150, 200)},
        validation=Validation(leaks="warn"),
    )  # fmt: skip
    request = toy.request_for(tmp_path, made)
    report = validate_records(toy.job(request, "validate"), records=toy.records_of(request))
    content = read_json(Store(tmp_path).path(report) / REPORT)
    text = (Store(tmp_path).path(report) / PAGE).read_text()
    assert "- **warn** 1 records of 'test' are duplicates across train/test (by decoded content)" in text
    assert "| train | 140 |\n| test | 50 |\n| in no split | 10 |\n| set aside | 0 |\n| raw rows | 200 |" in text
    assert "| train 10 (raw row 10) | test 10 (raw row 160) | same |" in text
    assert "| in both of train/test | 1 |" in text
    assert "nothing to compare with" in text
    counts = content["splits"]["train"]["classes"]["label"]
    assert f"| 1 | cross | {counts['cross']} ({counts['cross'] / 140:.1%}) |" in text
    pixels = content["splits"]["test"]["features"]["image"]
    assert f"| image [9, 8, 1] | {pixels['min']:.4g} | {pixels['quantiles']['0.05']:.4g} |" in text
    assert not re.search(r"https?://|<script|src=", text)
