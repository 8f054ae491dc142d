"""Splits on disk: blocks of rows, column by column, in ArrayRecord shards. `shard_writer.py` writes them.

One record holds `rows_per_record` rows: each feature's values for all of them, one feature after the other in the
*alphabetical order of the features' names*, little-endian, in C order, without header or padding. So the bytes don't
depend on the order in which a caller names the features, and with `rows_per_record=1` a record is a packed struct
that any ArrayRecord reader can take apart with `np.frombuffer`. Features whose examples have lengths of their own lie
behind these, again by name: the lengths of all rows as uint32, then all their values. Records aren't compressed: with
blocks of rows, zstd makes writing 8 times and reading 4 times slower, which costs more than the disk it saves.

Shards are called `<split>-00000-of-00003.array_record`. Where a writer made them all, all but the last hold the same
number of rows, so a row's record is a division away. Shards of several writers, a raw file each, may follow one another
too; the last record of each may then be short.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from datasets.errors import ArtifactDamaged, DataFormatError
from datasets.schema import Columns, Feature, check_int, in_batches
from tasks.block_cache import BlockCache
from tasks.durable import sha256_file
from tasks.record_layout import Layout, joined
from tasks.straight_reads import StraightReads

_READER_OPTIONS: dict[str, Any] = {"options": "readahead_buffer_size:0", "file_reader_buffer_size": 1 << 15}

MOST_OPEN = 512  # readers; each holds a file
_COPIED_AT_ONCE = 1 << 17  # bytes: few enough to be in the processor's cache still when they are copied


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


class Shards:
    """The rows of one split, read from its shards.

    Reads keep the blocks that they touched, up to `cache_bytes`, oldest out first; so a feed whose order stays
    within a window of blocks (`Order(..., block=rows_per_record)`) reads each block once an epoch. The first time
    ArrayRecord's reader checks the block, from then on it is read straight from the file (`straight_reads.py`). Threads
    may share an object; a pickled copy (Grain's workers) opens its own files and starts with an empty cache.

    Args:
        folder: Of the shards.
        shards: All of a split, in order.
        features: What a row is made of.
        rows_per_record: That they were written with.
        cache_bytes: Memory for blocks; at least one block is kept.

    Attributes:
        features: Those that `read` gives; `blocks` gives those of varying lengths too.

    Raises:
        ArtifactDamaged: A shard is missing or has another size than it should.
    """

    def __init__(
        self, folder: Path, shards: Iterable[Shard], features: Mapping[str, Feature], rows_per_record: int, *,
        cache_bytes: int = 1 << 28,
    ) -> None:  # fmt: skip
        check_int("rows_per_record", rows_per_record, 1)
        self.folder, self.shards, self.features = folder, tuple(shards), in_batches(features)
        self.rows_per_record, self.cache_bytes = rows_per_record, cache_bytes
        self._layout = Layout.of(features)
        self._at_once = max(1, _COPIED_AT_ONCE // (self._layout.row_bytes * rows_per_record or 1))
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
        self._straight = StraightReads(
            [self.folder / shard.name for shard in self.shards], self._first_record, self._layout, self.rows_per_record
        )

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__.copy()
        for name in ("_lock", "_readers", "_cache", "_straight"):
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
            yield {name: joined(name, parts) for name in self._layout.every}

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
        if ids.size and ids.view(np.uint64).max() >= self._rows:  # seen as unsigned, a negative id is a huge one
            raise IndexError(f"row {ids.min()} or {ids.max()} of {self._rows}")
        with self._lock:
            if self._cache is None:
                slots = max(1, self.cache_bytes // (self._layout.row_bytes * self.rows_per_record))
                self._cache = BlockCache(self._layout, self.rows_per_record, slots, int(self._first_record[-1]))
            return self._cache.read(self._places(ids), self._fill)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows would be if every record were full: int64 [N], record x rows_per_record + row within it."""
        if self._is_even:
            return ids
        shard = np.searchsorted(self._first_row, ids, side="right") - 1
        return self._first_record[shard] * self.rows_per_record + ids - self._first_row[shard]

    def _decoded(self, records: np.ndarray) -> Iterator[Columns]:
        """Gives the rows of each of these records; they are sorted."""
        for path, numbers, rows, raws in self._raw(records):
            for number, raw in zip(numbers, raws, strict=True):
                with _explained(path, [number]):
                    yield self._layout.decode(raw, rows)

    def _fill(self, records: np.ndarray, slots: np.ndarray, blocks: Columns) -> None:
        """Reads what has a fixed shape in these records, which are sorted, into slots of [slots, rows, *shape]."""
        left = self._straight.fill(records, slots, blocks)
        if not left.any():
            return
        records, slots, done = records[left], slots[left], 0
        whole = np.ones(len(records), bool)
        for path, numbers, rows, raws in self._raw(records):
            with _explained(path, numbers):
                self._layout.put(raws, rows, slots[done : done + len(numbers)].tolist(), blocks)
            whole[done : done + len(numbers)] = rows == self.rows_per_record
            done += len(numbers)
        self._straight.checked(records[whole], slots[whole], blocks)

    def _raw(self, records: np.ndarray) -> Iterator[tuple[Path, list[int], int, list[bytes]]]:
        """File, numbers within it, rows in each, and bytes of these records, in order; a short record comes alone."""
        shard_of = np.searchsorted(self._first_record, records, side="right") - 1
        for index in np.unique(shard_of).tolist():
            shard, path = self.shards[index], self.folder / self.shards[index].name
            local = (records[shard_of == index] - self._first_record[index]).tolist()
            if index not in self._readers:
                if len(self._readers) >= MOST_OPEN:
                    close_shard(self._readers.pop(next(iter(self._readers))))
                self._readers[index] = open_shard(path, shard, self.rows_per_record)
            full, rest = divmod(shard.rows, self.rows_per_record)
            whole = local[:-1] if local[-1] == full else local  # only the last of a shard can be short
            for start in range(0, len(whole), self._at_once):
                numbers = whole[start : start + self._at_once]
                yield path, numbers, self.rows_per_record, self._bytes_of(index, numbers)
            if len(whole) < len(local):
                yield path, local[-1:], rest, self._bytes_of(index, local[-1:])

    def _bytes_of(self, index: int, numbers: list[int]) -> list[bytes]:
        read = self._readers[index].read
        try:
            # One by one: for a list, the reader hands records to threads of its own, which costs more than it gains.
            return [read([number])[0] for number in numbers]
        except Exception as error:
            # Riegeli's reader stays failed after one bad read, and may have read good records before it.
            close_shard(self._readers.pop(index))
            raise ArtifactDamaged(
                "a record can't be read", file=str(self.folder / self.shards[index].name), records=_span(numbers),
                reason=str(error), cure="convert this split again",
            ) from error  # fmt: skip


@contextmanager
def _explained(path: Path, numbers: list[int]) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise DataFormatError(
            "a record has another length than its features say", file=str(path), record=_span(numbers), got=str(error)
        ) from error


def open_shard(path: Path, shard: Shard, rows_per_record: int) -> Any:  # noqa: ANN401 - the binding has no types
    """A reader of a shard that holds as many records as it should.

    Raises:
        ArtifactDamaged, DataFormatError: It is missing, damaged, or of another number of rows.
    """
    if not path.is_file():
        raise ArtifactDamaged("a shard is missing", file=str(path), expected=f"{shard.bytes} bytes")
    reader = array_record_module.ArrayRecordReader(str(path), **_READER_OPTIONS)
    if not reader.ok():  # a broken file gives a reader with 0 records; only close() says what is wrong
        raise ArtifactDamaged(
            "a shard can't be opened", file=str(path), reason=close_shard(reader), cure="convert this split again"
        )
    records = -(-shard.rows // rows_per_record)
    if reader.num_records() != records:
        got = reader.num_records()
        close_shard(reader)
        raise DataFormatError(
            "a shard has another number of records than its manifest says", file=str(path), got=got,
            expected=f"{records} ({shard.rows} rows, {rows_per_record} a record)",
        )  # fmt: skip
    return reader


def close_shard(reader: Any) -> str:  # noqa: ANN401
    """Closes a reader; gives what it has to complain about."""
    try:
        reader.close()
    except Exception as error:  # noqa: BLE001, RUF100 - the binding raises what the file system said
        return str(error)
    return "unknown"


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"one of {numbers[0]} ... {numbers[-1]}"
