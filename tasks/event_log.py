"""The metrics of a training for other tools: Parquet tables, and the event file that TensorBoard reads.

An event file is a sequence of records: length (uint64), its CRC, the bytes of an `Event` message, their CRC; all little
endian, each CRC a masked CRC-32C. Formats: https://www.tensorflow.org/tutorials/load_data/tfrecord and
tensorflow/core/util/event.proto. Nothing of this decides the weights; times are in here and nowhere else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.durable import write_bytes

METRICS, TIMES = "metrics.parquet", "times.parquet"
EVENTS = "events.out.tfevents.gristmill"  # TensorBoard takes every file with "tfevents" in its name
PLACE = ("step", "epoch", "examples")


def write_logs(folder: Path, rows: Sequence[dict[str, Any]], times: Sequence[dict[str, Any]], began: float) -> None:
    """Writes `metrics.parquet`, `times.parquet` and an event file, each whole or not at all.

    Args:
        folder: Made if it is missing; files of an earlier call are replaced.
        rows: Of the metric log. What a row lacks (the loss of a skipped batch) is null, never a number.
        times: Of stretches of steps, each {"step": last of them, "seconds": since the start, ...}; may be empty.
        began: Unix time of the start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in ((METRICS, rows), (TIMES, times)):
        sink = pa.BufferOutputStream()
        pq.write_table(as_table(table), sink)
        write_bytes(folder / name, sink.getvalue().to_pybytes())
    steps = np.array([row["step"] for row in rows], np.float64)
    known = np.array([(row["step"], row["seconds"]) for row in times] or [(0.0, 0.0)])
    walls = began + np.interp(steps, known[:, 0], known[:, 1])
    events = [(wall, row["step"], scalars(row)) for wall, row in zip(walls.tolist(), rows, strict=True)]
    events += [(began + row["seconds"], row["step"], timings(row)) for row in times]
    write_bytes(folder / EVENTS, event_file(events, began))


def as_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """One column for each name that any row has; null where a row lacks it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Tags and values of a row of the metric log: "train/loss", "test/accuracy", "train/skipped" ..."""
    if "skipped" in row:
        return {"train/skipped": 1.0}
    values = {name: float(value) for name, value in row.items() if name not in PLACE}
    return {f"test/{n[5:]}" if n.startswith("test_") else f"train/{n}": value for n, value in values.items()}


def timings(row: Mapping[str, Any]) -> dict[str, float]:
    """Tags and values of a row of times."""
    return {f"time/{name}": float(value) for name, value in row.items() if name not in ("step", "seconds")}


def event_file(events: Iterable[tuple[float, int, Mapping[str, float]]], began: float) -> bytes:
    """The bytes of an event file.

    Args:
        events: Unix time, step, and scalars by tag.
        began: Unix time of the first record, which names the format's version.
    """
    version = struct.pack("<Bd", 0x09, began) + _text(0x1A, b"brain.Event:2")
    return records([version, *(_event(*event) for event in events)])


def _event(wall: float, step: int, values: Mapping[str, float]) -> bytes:
    """An `Event`: wall_time = 1 (double), step = 2 (int64), summary = 5."""
    summary = b"".join(
        _text(0x0A, _text(0x0A, tag.encode()) + struct.pack("<Bf", 0x15, value)) for tag, value in values.items()
    )
    return struct.pack("<BdB", 0x09, wall, 0x10) + _varint(step) + _text(0x2A, summary)


def _text(key: int, data: bytes) -> bytes:
    return bytes([key]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def records(messages: Sequence[bytes]) -> bytes:
    """Messages as TFRecords."""
    lengths = [struct.pack("<Q", len(message)) for message in messages]
    heads, bodies = masked_crcs(lengths), masked_crcs(messages)
    parts = zip(lengths, heads, messages, bodies, strict=True)
    return b"".join(n + struct.pack("<I", head) + body + struct.pack("<I", crc) for n, head, body, crc in parts)


def masked_crcs(messages: Sequence[bytes]) -> list[int]:
    """The masked CRC-32C of each message; those of one length are computed side by side."""
    out = np.zeros(len(messages), np.uint32)
    lengths = np.array([len(message) for message in messages])
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length).tolist()
        data = np.frombuffer(b"".join(messages[i] for i in at), np.uint8).reshape(len(at), length)
        out[at] = crc32c(data)
    rotated = (out >> np.uint32(15)) | (out << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).tolist()


def crc32c(data: np.ndarray) -> np.ndarray:
    """CRC-32C (Castagnoli, RFC 3720 B.4) of each row: uint8 [N, L] -> uint32 [N]."""
    crc = np.full(len(data), 0xFFFFFFFF, np.uint32)
    for column in data.T:
        crc = (crc >> np.uint32(8)) ^ _TABLE[(crc ^ column) & np.uint32(0xFF)]
    return crc ^ np.uint32(0xFFFFFFFF)


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


_TABLE = _table()
