"""Writes the rows of a split as ArrayRecord shards; `records.py` says what lies in them and reads them.

A shard that is full is closed and its records are counted; while the next one is written other threads hash it and
sync it (`closed_shard.py`). So each byte is hashed once and each shard synced once, beside the work.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.errors import GristmillError, ParameterError, SplitError, StoreError
from datasets.schema import Columns, Feature, check_int
from tasks.closed_shard import ClosedShard
from tasks.durable import fsync_dir
from tasks.record_layout import Layout
from tasks.records import Shard
from tasks.turns import short_turns

MOST_CLOSED = 4  # shards whose hash and sync may be outstanding: they are open files
MAX_RECORDS = 4096  # of a shard: ArrayRecord finds a record in time linear in their number
# With more threads of its own, the writer spends more time on handing chunks over than on writing them
OPTIONS = "group_size:1,uncompressed,max_parallelism:1"


class ShardWriter:
    """Writes one split; several may be open at once, so that one pass over the raw data fills every split.

    Nothing has its final name before `finish`: a killed writer leaves only names that end in `.partial`, and the next
    writer of the same split removes them.

    Args:
        folder: Gets the shards.
        split: Its name.
        features: What a row is made of.
        rows_per_record: 1 for records that other ArrayRecord readers take apart row by row.
        rows_per_shard: A multiple of `rows_per_record`.
        beside: Whether another thread hashes full shards; where every core has a writer, it would only be in the way.

    Example:
        >>> with ShardWriter(folder, "train", features) as writer:  # doctest: +SKIP
        ...     for block in blocks:
        ...         writer.write(block)
        ...     shards = writer.finish()
    """

    def __init__(
        self, folder: Path, split: str, features: Mapping[str, Feature], *,
        rows_per_record: int = 256, rows_per_shard: int = 65536, beside: bool = True,
    ) -> None:  # fmt: skip
        check_sizes(rows_per_record, rows_per_shard)
        if not re.fullmatch(r"[A-Za-z0-9_]+", split):
            raise ParameterError("a split's name is made of letters, digits and _", got=repr(split))
        self._folder, self._split, self._layout = folder, split, Layout.of(features)
        self._rows_per_record, self._rows_per_shard = rows_per_record, rows_per_shard
        self._rows = 0  # taken in so far
        self._pending: list[list[bytes]] = []
        self._pending_rows = 0
        self._writer: Any = None
        self._shard_rows = 0
        self._shards: list[Shard] = []  # with the names that they have while they are partial
        self._closed: deque[ClosedShard] = deque()  # after these
        self._hash_here = not beside
        self._beside = ThreadPoolExecutor(2, thread_name_prefix="gristmill-shards")
        folder.mkdir(parents=True, exist_ok=True)
        self._remove(partial_only=False)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drops what is partial, if `finish` wasn't reached."""
        if self._writer is not None:
            with suppress(Exception):  # the block is being left because of the error that matters
                self._writer.close()
            self._writer = None
        self._beside.shutdown(cancel_futures=True)
        while self._closed:
            self._closed.popleft().close()
        self._remove(partial_only=True)

    def write(self, columns: Columns) -> None:
        """Takes the next rows of the split, as many as there are.

        Raises:
            SchemaError: They don't fit the features.
            StoreError: The disk is full or fails.
        """
        length, size = self._layout.check(columns, self._rows), self._rows_per_record
        head = min(length, -self._pending_rows % size)  # makes the record whole that was begun
        whole = head + (length - head) // size * size
        self._keep(columns, 0, head)
        self._put(self._layout.records(columns, head, whole, size), (whole - head) // size)
        self._keep(columns, whole, length)
        self._rows += length

    def finish(self) -> list[Shard]:
        """Closes, checks and names the shards.

        Raises:
            SplitError: No row was written.
            StoreError: The disk is full or fails.
        """
        if self._pending_rows:
            self._flush()
        if self._writer is not None:
            self._close_shard()
        self._settle(at_most=0)
        if not self._shards:
            raise SplitError(f"split {self._split!r} has no rows", split=self._split)
        named = []
        for index, shard in enumerate(self._shards):
            name = f"{self._split}-{index:05d}-of-{len(self._shards):05d}.array_record"
            (self._folder / shard.name).replace(self._folder / name)
            named.append(Shard(name, shard.rows, shard.sha256, shard.bytes))
        fsync_dir(self._folder)
        return named

    def _keep(self, columns: Columns, start: int, stop: int) -> None:
        """Takes rows that are no whole record, or make one with those before."""
        if start == stop:
            return
        self._pending.append([bytes(piece) for piece in self._layout.encode(columns, start, stop)])
        self._pending_rows += stop - start
        if self._pending_rows == self._rows_per_record:
            self._flush()

    def _flush(self) -> None:
        record = b"".join(part for place in zip(*self._pending, strict=True) for part in place)
        rows, self._pending, self._pending_rows = self._pending_rows, [], 0
        self._put(iter([record]), 1, rows)

    def _put(self, records: Iterator[bytes], count: int, rows: int | None = None) -> None:
        """Writes so many records of so many rows each; of full ones, unless it says."""
        rows = self._rows_per_record if rows is None else rows
        while count:
            room = -(-(self._rows_per_shard - self._shard_rows) // self._rows_per_record)
            some = min(count, room)
            with _explained(self._partial()):
                if self._writer is None:
                    self._writer = array_record_module.ArrayRecordWriter(str(self._partial()), OPTIONS)
                write = self._writer.write
                for record in itertools.islice(records, some):
                    write(record)
            count -= some
            self._shard_rows += some * rows
            if some == room:
                self._close_shard()

    def _close_shard(self) -> None:
        path, rows = self._partial(), self._shard_rows
        with _explained(path):
            writer, self._writer = self._writer, None
            writer.close()
            self._closed.append(ClosedShard(path, rows, self._rows_per_record, self._beside, hash_here=self._hash_here))
        self._shard_rows = 0
        self._settle(at_most=MOST_CLOSED)

    def _settle(self, *, at_most: int) -> None:
        """Takes the shards that are done, so that what went wrong with one is said now; leaves so many that aren't."""
        while self._closed and (len(self._closed) > at_most or self._closed[0].is_done):
            self._shards.append(self._closed.popleft().result())

    def _partial(self) -> Path:
        return self._folder / f"{self._split}-{len(self._shards) + len(self._closed):05d}.partial"

    def _remove(self, *, partial_only: bool) -> None:
        number = "[0-9]" * 5
        patterns = [f"{self._split}-{number}.partial", f"{self._split}-{number}-of-{number}.array_record"]
        for pattern in patterns[: 1 if partial_only else 2]:
            for path in self._folder.glob(pattern):
                path.unlink()


def write_shards(
    folder: Path, split: str, blocks: Iterable[Columns], features: Mapping[str, Feature], *,
    rows_per_record: int = 256, rows_per_shard: int = 65536,
) -> list[Shard]:  # fmt: skip
    """Writes a split as ArrayRecord shards; the same rows give the same bytes however they are cut into blocks.

    Args:
        folder: Where the shards go; shards of the same split in it are replaced.
        split: Name of the split.
        blocks: Rows in order, any number in each block.
        features: What a row is made of.
        rows_per_record: As `ShardWriter`.
        rows_per_shard: As `ShardWriter`.

    Raises:
        ParameterError: The sizes don't fit each other.
        SchemaError: A block doesn't fit the features; says field, got, expected and row.
        SplitError: There are no rows.
        StoreError: The disk is full or fails.
    """
    writer = ShardWriter(folder, split, features, rows_per_record=rows_per_record, rows_per_shard=rows_per_shard)
    with writer, short_turns():
        for block in blocks:
            writer.write(block)
        return writer.finish()


def check_sizes(rows_per_record: int, rows_per_shard: int) -> None:
    """Raises ParameterError unless shards of that size can hold, and quickly find, records of that size."""
    check_int("rows_per_record", rows_per_record, 1)
    check_int("rows_per_shard", rows_per_shard, 1)
    if rows_per_shard % rows_per_record:
        raise ParameterError(
            "rows_per_shard isn't a multiple of rows_per_record", got=rows_per_shard,
            expected=f"a multiple of {rows_per_record}",
        )  # fmt: skip
    if rows_per_shard // rows_per_record > MAX_RECORDS:
        raise ParameterError(
            "too many records in a shard: finding one takes time linear in their number",
            got=rows_per_shard // rows_per_record, expected=f"at most {MAX_RECORDS}",
            cure=f"rows_per_shard={MAX_RECORDS * rows_per_record} or less",
        )  # fmt: skip


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:
        raise StoreError("a shard can't be written", file=str(path), reason=str(error)) from error
