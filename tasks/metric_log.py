"""The metrics of a training, a JSON line a step: append-only while it runs, cut back to the checkpoint on a resume."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from datasets.errors import CheckpointCorrupt, CheckpointError
from tasks.durable import write_bytes

Position = Mapping[str, Any]
"""A place in the log, as JSON: {"bytes": how many lie before it, "sha256": their digest}; a checkpoint keeps it."""

_LINES = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE


class MetricLog:
    """The lines before a position, and what is appended from there on.

    What a killed training logged after its last checkpoint is cut away, a torn last line too, so that the file of a
    resumed training is byte for byte that of an uninterrupted one. No times are in it, for the same reason.

    Args:
        path: Of the file; made when it is absent.
        position: Where to go on; None to start an empty log.

    Raises:
        CheckpointCorrupt: What lies before the position isn't what was there when the checkpoint was saved.
        CheckpointError: The disk is full, or the file can't be written.
    """

    def __init__(self, path: Path, position: Position | None) -> None:
        self.path = path
        kept = b"" if position is None else read_until(path, position)
        self._bytes, self._digest = len(kept), hashlib.sha256(kept)
        with _explained(path):
            write_bytes(path, kept)
            self._file = path.open("ab", buffering=0)

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds rows; they are on the disk after `sync`.

        Raises:
            ValueError: A number is NaN or infinite, for which JSON has no word.
        """
        rows = list(rows)
        data = b"".join([orjson.dumps(row, option=_LINES) for row in rows])
        if b"null" in data:  # orjson's word for them
            json.dumps(rows, allow_nan=False)
        with _explained(self.path):
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        self._bytes += len(data)
        self._digest.update(data)

    def sync(self) -> Position:
        """Makes all rows survive a power cut; call it before the checkpoint that keeps the position that it gives."""
        with _explained(self.path):
            os.fsync(self._file.fileno())
        return self.position()

    def position(self) -> Position:
        """Behind the newest row; a checkpoint may keep it once `sync` was called."""
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Lets the file go; what was synced is safe."""
        self._file.close()


def read_until(path: Path, position: Position) -> bytes:
    """The log before a position, verified.

    Raises:
        CheckpointCorrupt: It isn't what was there when the checkpoint was saved.
        CheckpointError: It can't be read.
    """
    what = "the metric log isn't the one that was there when the checkpoint was saved"
    try:
        kept = path.read_bytes()[: position["bytes"]]
    except FileNotFoundError as error:
        raise CheckpointCorrupt(what, file=path, expected=f"{position['bytes']} bytes", got="missing") from error
    except OSError as error:
        raise CheckpointError("the metric log can't be read", file=path, got=error) from error
    if len(kept) < position["bytes"]:
        raise CheckpointCorrupt(what, file=path, expected=f"{position['bytes']} bytes", got=f"{len(kept)} bytes")
    if (digest := hashlib.sha256(kept).hexdigest()) != position["sha256"]:
        raise CheckpointCorrupt(
            what, file=path, expected=f"sha256 {position['sha256']} of the first {position['bytes']} bytes",
            got=f"sha256 {digest}",
        )  # fmt: skip
    return kept


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            "the metric log can't be written", file=path, got=f"{type(error).__name__}: {error}"
        ) from error


def read_lines(path: Path) -> list[str]:
    """Whole lines of the file; a torn last one is left out. An absent file has none."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metric log."""
    return [json.loads(line) for line in read_lines(path)]
