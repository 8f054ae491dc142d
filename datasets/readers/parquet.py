"""Parquet: one file, a folder of files, or a folder with hive partitions (`year=2024/month=5/part-0.parquet`).

Each file is read by itself, sorted by name, so that types are those of the declared features and not those of the file
that happens to come first. A hive key is a text column that is constant over its files. Names that start with "_" or
"." (markers, checksums) are no data. A file of no rows is sound and gives one block of no rows.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datasets.errors import DataFormatError, SchemaError
from datasets.readers import tables
from datasets.readers.cores import may_use_all
from datasets.readers.tables import ROWS, ColumnNames
from datasets.readers.zones import zones_here
from datasets.schema import Block, Feature

ENDINGS = (".parquet", ".pq", ".parq")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAGIC = b"PAR1"


def blocks(
    raw: Path, where: str, features: Mapping[str, Feature], *,
    columns: ColumnNames | None = None, fill: Mapping[str, float] | None = None, rows: int = ROWS,
) -> Iterator[Block]:  # fmt: skip
    """Rows of one Parquet file or several; every footer and header is checked before the first block.

    Args:
        raw: Folder of the raw files.
        where: File, folder or pattern in it (`tables.files_of`).
        features: Declared features; the columns of the blocks.
        columns: Column, or columns side by side, of the features that aren't named as their column is.
        fill: By feature, what stands for a missing value; a feature without is refused when a value is missing.
        rows: Of a block.

    Yields:
        Blocks of `rows` rows of one file.

    Raises:
        FetchError: There's no such file.
        DataFormatError: A file is empty, cut or damaged, or there are no records at all.
        SchemaError: Columns are missing or named twice, or values don't fit the features.
    """
    wanted, zones = tables.wanted_columns(features, columns), zones_here()
    files = tables.files_of(raw, where, ENDINGS)
    for path, name in files:
        with _opened(path) as file:
            keys = hive_keys(name)
            names = file.schema_arrow.names
            if both := set(keys) & set(names):
                raise SchemaError("column is in the file and in the folder's name", file=path, field=min(both))
            tables.check_header([*names, *keys], wanted, str(path))

    def every() -> Iterator[Block]:
        for path, name in files:
            batches = _batches(path, name, wanted, rows)
            yield from tables.to_blocks(batches, name, features, wanted, fill=fill, rows=rows, zones=zones)

    return tables.some_rows(every(), raw / where)


def hive_keys(name: str) -> dict[str, str | None]:
    """Keys and values in the folders of a name: "year=2024/part-0.parquet" gives {"year": "2024"}."""
    pairs = [part.partition("=") for part in Path(name).parent.parts if "=" in part]
    return {key: None if value == HIVE_NULL else urllib.parse.unquote(value) for key, _, value in pairs}


def _opened(path: Path) -> pq.ParquetFile:
    size = path.stat().st_size
    if size == 0:
        raise DataFormatError("Parquet file of 0 bytes", file=path)
    with path.open("rb") as file:
        file.seek(max(size - len(MAGIC), 0))
        end = file.read()
    if end != MAGIC:
        raise DataFormatError(
            "Parquet footer missing: the file is cut or was never closed", file=path, expected=MAGIC, got=end
        )
    try:
        # Pre-buffering keeps every row group that was read until the file is closed.
        return pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataFormatError("not a Parquet file", file=path, got=error) from error


def _batches(path: Path, name: str, wanted: Mapping[str, tuple[str, ...]], rows: int) -> Iterator[pa.RecordBatch]:
    keys = hive_keys(name)
    used = list(dict.fromkeys(column for group in wanted.values() for column in group))
    inside = [column for column in used if column not in keys]
    with _opened(path) as file:
        # Without a column of its own, a file still says how many rows it has.
        columns = inside or file.schema_arrow.names[:1]
        reader = file.iter_batches(batch_size=rows, columns=columns, use_threads=may_use_all())
        row = 0
        while True:
            try:
                batch = next(reader, None)
            except (pa.ArrowException, OSError) as error:
                raise DataFormatError("damaged Parquet file", file=path, row=f"{row} or later", got=error) from error
            if batch is None:
                return
            row += batch.num_rows
            for key in keys.keys() & set(used):
                batch = batch.append_column(key, pa.repeat(pa.scalar(keys[key], pa.string()), batch.num_rows))
            yield batch
