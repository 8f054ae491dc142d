"""The log of a resumed training is that of an uninterrupted one, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from datasets.errors import CheckpointCorrupt, CheckpointError
from tasks.metric_log import MetricLog, Position, read_lines, read_metrics, read_until


def row(step: int) -> dict[str, Any]:
    return {"step": step, "loss": 1 / (step + 1), "epoch": step // 4}


def write(path: Path, position: Position | None, start: int, stop: int) -> Position:
    log = MetricLog(path, position)
    log.append(row(step) for step in range(start, stop))
    reached = log.sync()
    log.close()
    return reached


def test_rows_come_back(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", None, 0, 10)
    assert read_metrics(tmp_path / "m.jsonl") == [row(step) for step in range(10)]
    assert read_metrics(tmp_path / "absent") == []


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_no_word_for_is_refused_and_none_is_not(tmp_path: Path, number: float) -> None:
    log = MetricLog(tmp_path / "m.jsonl", None)
    log.append([{"step": 0, "skipped": None, "records": ["null", None]}])
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append([row(1), {"step": 2, "loss": number}])
    assert read_metrics(log.path) == [{"step": 0, "skipped": None, "records": ["null", None]}]


@pytest.mark.parametrize("tail", ["", '{"step": 7, "lo', '{"step": 9, "loss": 1.0}\n', '{"step": 9}\n{"st', "\0\0\0"])
@pytest.mark.parametrize("step", [1, 5, 7])
def test_cut_back_and_continued_equals_uninterrupted(tmp_path: Path, step: int, tail: str) -> None:
    whole = write(tmp_path / "whole", None, 0, 12)
    position = write(tmp_path / "killed", None, 0, step)
    write(tmp_path / "killed", position, step, 7)
    with (tmp_path / "killed").open("a") as file:
        file.write(tail)
    assert write(tmp_path / "killed", position, step, 12) == whole
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_without_a_checkpoint_what_was_logged_is_cut_away(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", None, 3, 7)
    write(tmp_path / "m.jsonl", None, 0, 2)
    assert read_metrics(tmp_path / "m.jsonl") == [row(0), row(1)]


def harmed(path: Path, harm: str, at: int) -> None:
    data = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
    else:
        data[at] ^= 1
        path.write_bytes(data[:at] if harm == "cut" else data)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_log_that_is_not_the_one_of_the_checkpoint_is_never_gone_on_with(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "m.jsonl"
    position = write(path, None, 0, 5)
    write(path, position, 5, 8)
    harmed(path, harm, position["bytes"] - 3)
    left = path.read_bytes() if path.exists() else None
    with pytest.raises(CheckpointCorrupt) as caught:
        MetricLog(path, position)
    assert set(caught.value.facts) == {"file", "expected", "got"}
    assert (path.read_bytes() if path.exists() else None) == left


def test_harm_behind_the_position_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    position = write(path, None, 0, 5)
    write(path, position, 5, 8)
    harmed(path, "flip", position["bytes"])
    assert read_until(path, position) == path.read_bytes()[: position["bytes"]]


def test_a_log_that_can_not_be_written_names_path_and_cause(tmp_path: Path) -> None:
    log = MetricLog(tmp_path / "m.jsonl", None)
    log.close()
    log._file = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115 - the log closes it
    with pytest.raises(CheckpointError, match="can't be written") as caught:
        log.append([row(0)])
    assert caught.value.facts["file"] == tmp_path / "m.jsonl"
    assert "No space left" in str(caught.value.facts["got"])
    log.close()


def test_a_torn_last_line_is_no_row(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", None, 0, 2)
    whole = (tmp_path / "m.jsonl").read_text()
    (tmp_path / "m.jsonl").write_text(whole[:-1])  # even when only its end is missing
    assert len(read_lines(tmp_path / "m.jsonl")) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_has_not_are_refused(tmp_path: Path, value: float) -> None:
    log = MetricLog(tmp_path / "m.jsonl", None)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append([{"step": 0, "loss": value}])
    log.append([{"step": 0, "loss": 1.0}])
    log.close()
    assert read_metrics(tmp_path / "m.jsonl") == [{"step": 0, "loss": 1.0}]


def test_the_order_of_names_in_a_row_changes_no_byte(tmp_path: Path) -> None:
    for name, one in (("a", {"step": 0, "loss": 1.0}), ("b", {"loss": 1.0, "step": 0})):
        log = MetricLog(tmp_path / name, None)
        log.append([one])
        log.close()
        log.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
