"""Splits on disk: blocks of rows, column by column, in ArrayRecord shards.

One record holds `rows_per_record` rows: each feature's values for all of them, one feature after the other in the
*alphabetical order of the features' names*, little-endian, in C order, without header or padding. So the bytes don't
depend on the order in which a caller names the features, and with `rows_per_record=1` a record is a packed struct
that any ArrayRecord reader can take apart with `np.frombuffer`. Records aren't compressed: with blocks of rows,
zstd makes writing 8 times and reading 4 times slower, which costs more than the disk it saves.

Shards are called `<split>-00000-of-00003.array_record`. Where a writer made them all, all but the last hold the same
number of rows, so a row's record is a division away. Shards of several writers, a raw file each, may follow one another
too; the last record of each may then be short.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.errors import ArtifactDamaged, DataFormatError, ParameterError, SplitError, StoreError
from datasets.schema import Columns, Feature, check_int
from tasks.block_cache import BlockCache
from tasks.durable import fsync_dir, sha256_file
from tasks.record_layout import Layout

MAX_RECORDS = 4096  # of a shard: ArrayRecord finds a record in time linear in their number
_WRITER_OPTIONS = "group_size:1,uncompressed"
_READER_OPTIONS: dict[str, Any] = {"options": "readahead_buffer_size:0", "file_reader_buffer_size": 1 << 15}


@dataclass(frozen=True)
class Shard:
    """One shard file.

    Attributes:
        name: Of the file, within its folder.
        rows: In this shard.
        sha256: Of the file.
        bytes: Size of the file.
    """

    name: str
    rows: int
    sha256: str
    bytes: int


class ShardWriter:
    """Writes one split; several may be open at once, so that one pass over the raw data fills every split.

    Nothing has its final name before `finish`: a killed writer leaves only names that end in `.partial`, and the next
    writer of the same split removes them.

    Example:
        >>> with ShardWriter(folder, "train", features) as writer:  # doctest: +SKIP
        ...     for block in blocks:
        ...         writer.write(block)
        ...     shards = writer.finish()
    """

    def __init__(
        self, folder: Path, split: str, features: Mapping[str, Feature], *,
        rows_per_record: int = 256, rows_per_shard: int = 65536,
    ) -> None:  # fmt: skip
        check_sizes(rows_per_record, rows_per_shard)
        if not re.fullmatch(r"[A-Za-z0-9_]+", split):
            raise ParameterError("a split's name is made of letters, digits and _", got=repr(split))
        self._folder, self._split, self._layout = folder, split, Layout.of(features)
        self._rows_per_record, self._rows_per_shard = rows_per_record, rows_per_shard
        self._rows = 0  # taken in so far
        self._pending: list[list[bytes]] = []
        self._pending_rows = 0
        self._shards: list[Shard] = []  # with the names that they have while they are partial
        self._writer: Any = None
        self._shard_rows = 0
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
        self._remove(partial_only=True)

    def write(self, columns: Columns) -> None:
        """Takes the next rows of the split, as many as there are.

        Raises:
            SchemaError: They don't fit the features.
            StoreError: The disk is full or fails.
        """
        length = self._layout.check(columns, self._rows)
        start = 0
        while start < length:
            stop = min(length, start + self._rows_per_record - self._pending_rows)
            self._pending.append(self._layout.encode(columns, start, stop))
            self._pending_rows += stop - start
            start = stop
            if self._pending_rows == self._rows_per_record:
                self._flush_record()
        self._rows += length

    def finish(self) -> list[Shard]:
        """Closes, checks and names the shards.

        Raises:
            SplitError: No row was written.
            StoreError: The disk is full or fails.
        """
        if self._pending_rows:
            self._flush_record()
        if self._writer is not None:
            self._close_shard()
        if not self._shards:
            raise SplitError(f"split {self._split!r} has no rows", split=self._split)
        named = []
        for index, shard in enumerate(self._shards):
            name = f"{self._split}-{index:05d}-of-{len(self._shards):05d}.array_record"
            (self._folder / shard.name).replace(self._folder / name)
            named.append(Shard(name, shard.rows, shard.sha256, shard.bytes))
        fsync_dir(self._folder)
        return named

    def _flush_record(self) -> None:
        parts = [piece for feature in zip(*self._pending, strict=True) for piece in feature]
        try:
            if self._writer is None:
                self._writer = array_record_module.ArrayRecordWriter(str(self._partial()), _WRITER_OPTIONS)
            self._writer.write(b"".join(parts))
        except Exception as error:
            raise StoreError("a shard can't be written", file=str(self._partial()), reason=str(error)) from error
        self._shard_rows += self._pending_rows
        self._pending, self._pending_rows = [], 0
        if self._shard_rows == self._rows_per_shard:
            self._close_shard()

    def _close_shard(self) -> None:
        path = self._partial()
        try:
            writer, self._writer = self._writer, None
            writer.close()
            _sync(path)
            digest, size = sha256_file(path), path.stat().st_size
        except Exception as error:
            raise StoreError("a shard can't be written", file=str(path), reason=str(error)) from error
        shard = Shard(path.name, self._shard_rows, digest, size)
        _close(_open(path, shard, self._rows_per_record))
        self._shards.append(shard)
        self._shard_rows = 0

    def _partial(self) -> Path:
        return self._folder / f"{self._split}-{len(self._shards):05d}.partial"

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
        rows_per_record: 1 for records that other ArrayRecord readers take apart row by row.
        rows_per_shard: A multiple of `rows_per_record`.

    Raises:
        ParameterError: The sizes don't fit each other.
        SchemaError: A block doesn't fit the features; says field, got, expected and row.
        SplitError: There are no rows.
        StoreError: The disk is full or fails.
    """
    with ShardWriter(folder, split, features, rows_per_record=rows_per_record, rows_per_shard=rows_per_shard) as writer:
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


class Shards:
    """The rows of one split, read from its shards.

    Reads keep the blocks that they touched, up to `cache_bytes`, oldest out first; so a feed whose order stays
    within a window of blocks (`Order(..., block=rows_per_record)`) reads each block once an epoch. Threads may share
    an object; a pickled copy (Grain's workers) opens its own files and starts with an empty cache.

    Args:
        folder: Of the shards.
        shards: All of a split, in order.
        features: What a row is made of.
        rows_per_record: That they were written with.
        cache_bytes: Memory for blocks; at least one block is kept.

    Raises:
        ArtifactDamaged: A shard is missing or has another size than it should.
    """

    def __init__(
        self, folder: Path, shards: Iterable[Shard], features: Mapping[str, Feature], rows_per_record: int, *,
        cache_bytes: int = 1 << 28,
    ) -> None:  # fmt: skip
        check_int("rows_per_record", rows_per_record, 1)
        self.folder, self.shards, self.features = folder, tuple(shards), dict(features)
        self.rows_per_record, self.cache_bytes = rows_per_record, cache_bytes
        self._layout = Layout.of(features)
        records = [-(-shard.rows // rows_per_record) for shard in self.shards]
        self._first_record = np.cumsum([0, *records])
        self._first_row = np.cumsum([0, *(shard.rows for shard in self.shards)])
        self._rows = int(self._first_row[-1])
        # Shards of several raw files may each end in a record that isn't full
        self._is_even = not any(shard.rows % rows_per_record for shard in self.shards[:-1])
        self._start()
        self.verify(full=False)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[int, Any] = {}
        self._cache: BlockCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__.copy()
        for name in ("_lock", "_readers", "_cache"):
            del kept[name]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"Shards({len(self.shards)} shards, {self._rows} rows)"

    @property
    def digest(self) -> str:
        """SHA-256 over what the shards' own digests say; changes with the cut into shards."""
        return hashlib.sha256("\n".join(shard.sha256 for shard in self.shards).encode()).hexdigest()

    def verify(self, *, full: bool) -> None:
        """Checks that the files are there with their sizes, and with `full` also their digests.

        Raises:
            ArtifactDamaged: One isn't; names the file and the reason.
        """
        for shard in self.shards:
            path = self.folder / shard.name
            if not path.is_file():
                raise ArtifactDamaged("a shard is missing", file=str(path), expected=f"{shard.bytes} bytes")
            if path.stat().st_size != shard.bytes:
                raise ArtifactDamaged(
                    "a shard has another size than when it was written", file=str(path),
                    got=f"{path.stat().st_size} bytes", expected=f"{shard.bytes} bytes",
                )  # fmt: skip
            if full and (digest := sha256_file(path)) != shard.sha256:
                raise ArtifactDamaged(
                    "a shard has other content than when it was written", file=str(path), got=f"sha256 {digest}",
                    expected=f"sha256 {shard.sha256}",
                )  # fmt: skip

    def blocks(self) -> Iterator[Columns]:
        """Gives all rows in order, a few MB at a time.

        Raises:
            ArtifactDamaged, DataFormatError: A shard isn't what it was when it was written.
        """
        at_once = max(1, (1 << 22) // (self._layout.row_bytes * self.rows_per_record))
        for record in range(0, int(self._first_record[-1]), at_once):
            records = np.arange(record, min(record + at_once, int(self._first_record[-1])))
            with self._lock:
                parts = list(self._decoded(records))
            yield {name: np.concatenate([part[name] for part in parts]) for name in self._layout.names}

    def read(self, ids: np.ndarray) -> Columns:
        """Gives some rows, in the order of `ids`, as fresh arrays.

        Args:
            ids: int64 [N], 0 <= id < len(self); may repeat.

        Returns:
            One array a feature, [N, *feature.shape].

        Raises:
            IndexError: An id is out of range.
            ArtifactDamaged, DataFormatError: A shard isn't what it was when it was written.
        """
        ids = np.asarray(ids, np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self._rows:
            raise IndexError(f"row {ids.min()} or {ids.max()} of {self._rows}")
        with self._lock:
            if self._cache is None:
                slots = max(1, self.cache_bytes // (self._layout.row_bytes * self.rows_per_record))
                self._cache = BlockCache(self._layout, self.rows_per_record, slots, int(self._first_record[-1]))
            return self._cache.read(self._places(ids), self._decoded)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows would be if every record were full: int64 [N], record x rows_per_record + row within it."""
        if self._is_even:
            return ids
        shard = np.searchsorted(self._first_row, ids, side="right") - 1
        return self._first_record[shard] * self.rows_per_record + ids - self._first_row[shard]

    def _decoded(self, records: np.ndarray) -> Iterator[Columns]:
        """Gives the rows of each of these records; they are sorted."""
        shard_of = np.searchsorted(self._first_record, records, side="right") - 1
        for index in np.unique(shard_of).tolist():
            shard, path = self.shards[index], self.folder / self.shards[index].name
            local = (records[shard_of == index] - self._first_record[index]).tolist()
            if index not in self._readers:
                self._readers[index] = _open(path, shard, self.rows_per_record)
            try:
                raws = self._readers[index].read(local)
            except Exception as error:
                # Riegeli's reader stays failed after one bad read, and may have read good records before it.
                _close(self._readers.pop(index))
                raise ArtifactDamaged(
                    "a record can't be read", file=str(path), records=_span(local), reason=str(error),
                    cure="convert this split again",
                ) from error  # fmt: skip
            for record, raw in zip(local, raws, strict=True):
                wanted = min(self.rows_per_record, shard.rows - record * self.rows_per_record)
                if len(raw) != wanted * self._layout.row_bytes:
                    raise DataFormatError(
                        "a record has another length than its features say", file=str(path), record=record,
                        got=f"{len(raw)} bytes", expected=f"{wanted} rows of {self._layout.row_bytes} bytes",
                    )  # fmt: skip
                yield self._layout.decode(raw)[1]


def _open(path: Path, shard: Shard, rows_per_record: int) -> Any:  # noqa: ANN401 - the binding has no types
    if not path.is_file():
        raise ArtifactDamaged("a shard is missing", file=str(path), expected=f"{shard.bytes} bytes")
    reader = array_record_module.ArrayRecordReader(str(path), **_READER_OPTIONS)
    if not reader.ok():  # a broken file gives a reader with 0 records; only close() says what is wrong
        raise ArtifactDamaged(
            "a shard can't be opened", file=str(path), reason=_close(reader), cure="convert this split again"
        )
    records = -(-shard.rows // rows_per_record)
    if reader.num_records() != records:
        got = reader.num_records()
        _close(reader)
        raise DataFormatError(
            "a shard has another number of records than its manifest says", file=str(path), got=got,
            expected=f"{records} ({shard.rows} rows, {rows_per_record} a record)",
        )  # fmt: skip
    return reader


def _close(reader: Any) -> str:  # noqa: ANN401
    try:
        reader.close()
    except Exception as error:  # noqa: BLE001, RUF100 - the binding raises what the file system said
        return str(error)
    return "unknown"


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"one of {numbers[0]} ... {numbers[-1]}"


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
