from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.event_log import EVENTS, METRICS, TIMES, crc32c, event_file, masked_crcs, write_logs

ROWS: list[dict[str, Any]] = [
    {"step": 0, "epoch": 0, "loss": 2.5, "accuracy": 0.25, "grad_norm": 3.0, "learning_rate": 0.1},
    {"step": 1, "epoch": 0, "skipped": "loss", "records": [7, 3]},
    {"step": 300, "epoch": 1, "loss": 1.5, "accuracy": 0.5, "grad_norm": 2.0, "learning_rate": 0.05},
    {"step": 300, "epoch": 1, "examples": 50, "test_loss": 1.25, "test_accuracy": 0.75},
]
TIMED: list[dict[str, Any]] = [
    {"step": 0, "seconds": 1.0, "step_ms": 2.0, "examples_per_second": 64.0},
    {"step": 300, "seconds": 4.0, "step_ms": 1.0, "examples_per_second": 128.0},
]


def plain_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283), (b"", 0),
    ],
)  # fmt: skip
def test_the_crc_is_that_of_the_standard(data: bytes, expected: int) -> None:
    """RFC 3720, B.4, and the check value of the catalogue of CRCs."""
    assert crc32c(np.frombuffer(data, np.uint8).reshape(1, -1)).tolist() == [expected]
    assert plain_crc(data) == expected


def test_messages_of_many_lengths_keep_their_order() -> None:
    messages = [bytes([i]) * (i % 3) for i in range(20)]
    for message, masked in zip(messages, masked_crcs(messages), strict=True):
        crc = plain_crc(message)
        assert masked == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# A reader of its own, from the formats' specifications.


def messages_of(data: bytes) -> list[bytes]:
    out = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        for part, crc in ((data[:8], data[8:12]), (data[12 : 12 + length], data[12 + length : 16 + length])):
            raw = plain_crc(part)
            assert struct.unpack("<I", crc)[0] == (((raw >> 15) | (raw << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        out.append(data[12 : 12 + length])
        data = data[16 + length :]
    return out


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[at + 1 :]
    raise AssertionError("a number without an end")


def fields(data: bytes) -> list[tuple[int, Any]]:
    out: list[tuple[int, Any]] = []
    while data:
        key, data = varint(data)
        match key & 7:
            case 0:
                value, data = varint(data)
            case 1:
                value, data = struct.unpack("<d", data[:8])[0], data[8:]
            case 5:
                value, data = struct.unpack("<f", data[:4])[0], data[4:]
            case 2:
                size, data = varint(data)
                value, data = data[:size], data[size:]
            case kind:
                raise AssertionError(f"wire type {kind}")
        out.append((key >> 3, value))
    return out


def read_events(data: bytes) -> list[tuple[float, int, dict[str, float]]]:
    first, *others = [dict(fields(message)) for message in messages_of(data)]
    assert first[3] == b"brain.Event:2"
    found = []
    for event in others:
        values = [dict(fields(value)) for number, value in fields(event[5]) if number == 1]
        found.append((event[1], event[2], {value[1].decode(): value[2] for value in values}))
    return found


def test_events_come_back() -> None:
    events = [(10.5, 0, {"a/b": 1.5, "c": -2.0}), (11.0, 127, {"a/b": 3.0}), (12.0, 1 << 40, {"long " * 40: 0.25})]
    assert read_events(event_file(events, 10.0)) == events


def test_what_is_written(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", ROWS, TIMED, began=1000.0)
    write_logs(tmp_path / "logs", ROWS, TIMED, began=1000.0)
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {METRICS, TIMES, EVENTS}
    events = read_events((tmp_path / "logs" / EVENTS).read_bytes())
    assert [(wall, step) for wall, step, _ in events] == [
        (1001.0, 0), (pytest.approx(1001.01), 1), (1004.0, 300), (1004.0, 300), (1001.0, 0), (1004.0, 300),
    ]  # fmt: skip
    assert events[0][2] == pytest.approx(
        {"train/loss": 2.5, "train/accuracy": 0.25, "train/grad_norm": 3.0, "train/learning_rate": 0.1}
    )
    assert [values for *_, values in events[1:]] == [
        {"train/skipped": 1.0},
        pytest.approx({"train/loss": 1.5, "train/accuracy": 0.5, "train/grad_norm": 2.0, "train/learning_rate": 0.05}),
        {"test/loss": 1.25, "test/accuracy": 0.75},
        {"time/step_ms": 2.0, "time/examples_per_second": 64.0},
        {"time/step_ms": 1.0, "time/examples_per_second": 128.0},
    ]
    table = pq.read_table(tmp_path / "logs" / METRICS).to_pylist()
    assert table[1]["loss"] is None  # a batch that was left out has no loss: neither NaN nor 0
    assert (table[1]["skipped"], table[1]["records"]) == ("loss", [7, 3])
    assert [row["loss"] for row in table] == [2.5, None, 1.5, None]
    assert table[3]["test_loss"] == 1.25
    assert pq.read_table(tmp_path / "logs" / TIMES).to_pylist() == TIMED


def test_a_training_that_was_resumed_at_its_end_has_no_times(tmp_path: Path) -> None:
    write_logs(tmp_path, ROWS, [], began=1000.0)
    assert [wall for wall, *_ in read_events((tmp_path / EVENTS).read_bytes())] == [1000.0] * len(ROWS)
