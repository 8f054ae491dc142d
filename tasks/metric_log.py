"""The metrics of a training, a JSON line a step: append-only while it runs, cut back to the checkpoint on a resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tasks.durable import write_bytes


class MetricLog:
    """Lines of steps below `step`, and what is appended from there on.

    What a killed training logged after its last checkpoint is cut away, a torn last line too, so that the file of a resumed
    training is byte for byte that of an uninterrupted one. No times are in it, for the same reason.

    Args:
        path: Of the file; made when it is absent.
        step: First step that will be appended.

    Raises:
        OSError: The disk is full, or the file can't be written.
    """

    def __init__(self, path: Path, step: int) -> None:
        kept = [line for line in read_lines(path) if json.loads(line)["step"] < step]
        write_bytes(path, "".join(kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds rows; they are on the disk after `sync`."""
        self._file.writelines(json.dumps(row, sort_keys=True, allow_nan=False) + "\n" for row in rows)

    def sync(self) -> None:
        """Makes all rows survive a power cut; call it before the checkpoint that refers to them."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Syncs and closes."""
        if not self._file.closed:
            self.sync()
            self._file.close()


def read_lines(path: Path) -> list[str]:
    """Whole lines of the file; a torn last one is left out. An absent file has none."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metric log."""
    return [json.loads(line) for line in read_lines(path)]
