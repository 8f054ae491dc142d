"""The log of a resumed training is that of an uninterrupted one, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.metric_log import MetricLog, read_lines, read_metrics


def row(step: int) -> dict[str, Any]:
    return {"step": step, "loss": 1 / (step + 1), "epoch": step // 4}


def write(path: Path, start: int, stop: int) -> None:
    log = MetricLog(path, start)
    log.append(row(step) for step in range(start, stop))
    log.close()


def test_rows_come_back(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", 0, 10)
    assert read_metrics(tmp_path / "m.jsonl") == [row(step) for step in range(10)]
    assert read_metrics(tmp_path / "absent") == []


@pytest.mark.parametrize("tail", ["", '{"step": 7, "lo', '{"step": 9, "loss": 1.0}\n', '{"step": 9}\n{"st', "\0\0\0"])
@pytest.mark.parametrize("step", [0, 1, 5, 7])
def test_cut_back_and_continued_equals_uninterrupted(tmp_path: Path, step: int, tail: str) -> None:
    write(tmp_path / "whole", 0, 12)
    write(tmp_path / "killed", 0, 7)
    with (tmp_path / "killed").open("a") as file:
        file.write(tail)
    write(tmp_path / "killed", step, 12)
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_torn_last_line_is_no_row(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", 0, 2)
    whole = (tmp_path / "m.jsonl").read_text()
    (tmp_path / "m.jsonl").write_text(whole[:-1])  # even when only its end is missing
    assert len(read_lines(tmp_path / "m.jsonl")) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_has_not_are_refused(tmp_path: Path, value: float) -> None:
    log = MetricLog(tmp_path / "m.jsonl", 0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append([{"step": 0, "loss": value}])
    log.append([{"step": 0, "loss": 1.0}])
    log.close()
    assert read_metrics(tmp_path / "m.jsonl") == [{"step": 0, "loss": 1.0}]


def test_the_order_of_names_in_a_row_changes_no_byte(tmp_path: Path) -> None:
    for name, one in (("a", {"step": 0, "loss": 1.0}), ("b", {"loss": 1.0, "step": 0})):
        log = MetricLog(tmp_path / name, 0)
        log.append([one])
        log.close()
        log.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_rows_are_on_the_disk_after_sync(tmp_path: Path) -> None:
    log = MetricLog(tmp_path / "m.jsonl", 0)
    log.append([row(0)])
    log.sync()
    assert read_metrics(tmp_path / "m.jsonl") == [row(0)]
    log.close()
