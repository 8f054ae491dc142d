"""CSV and its kin (TSV, semicolons), gzip or not: text in, declared features out.

Format: RFC 4180, read by pyarrow with every column as text, so that no type is guessed from the first block; the rules
of `values.py` decide the rest. The first record names the columns. Quoted values may hold line breaks and delimiters, a
quote inside is written twice. Text is UTF-8, with or without a byte order mark; all of it is checked. Blank lines are
no records. Columns that no feature wants are parsed but not looked at.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from datasets.errors import DataFormatError
from datasets.readers import raw as raw_files
from datasets.readers import tables
from datasets.readers.tables import ROWS, ColumnNames
from datasets.readers.zones import zones_here
from datasets.schema import Block, Feature

BLOCK = 16 << 20  # most bytes a record; pyarrow holds a few of these
END = "\x1eend of file\x1e"
ENDINGS = tuple(f"{end}{gz}" for end in (".csv", ".tsv", ".tab", ".txt") for gz in ("", ".gz"))
MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32",
         codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}  # fmt: skip


def blocks(
    raw: Path, where: str, features: Mapping[str, Feature], *,
    columns: ColumnNames | None = None, fill: Mapping[str, float] | None = None, delimiter: str | None = None,
    times: Sequence[str] = (), rows: int = ROWS,
) -> Iterator[Block]:  # fmt: skip
    """Rows of one delimited file or several.

    Args:
        raw: Folder of the raw files.
        where: File, folder or pattern in it (`tables.files_of`).
        features: Declared features; the columns of the blocks.
        columns: Column, or columns side by side, of the features that aren't named as their column is.
        fill: By feature, what stands for a missing value; a feature without is refused when a value is missing.
        delimiter: Between values; None for a tab in .tsv and .tab files and a comma in others.
        times: Columns of text that are times (`times.py`).
        rows: Of a block.

    Yields:
        Blocks of `rows` rows of one file; row 0 is the record after the header.

    Raises:
        FetchError: There's no such file.
        DataFormatError: A file isn't delimited text in UTF-8, or there are no records at all.
        SchemaError: Columns are missing or named twice, or values don't fit the features.
    """
    wanted, zones = tables.wanted_columns(features, columns), zones_here()

    def every() -> Iterator[Block]:
        for path, name in tables.files_of(raw, where, ENDINGS):
            texts = batches(path, wanted, delimiter or _usual_delimiter(name))
            yield from tables.to_blocks(texts, name, features, wanted, fill=fill, rows=rows, zones=zones, times=times)

    return tables.some_rows(every(), raw / where)


def _usual_delimiter(name: str) -> str:
    return "\t" if name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","


def batches(path: Path, wanted: Mapping[str, tuple[str, ...]], delimiter: str) -> Iterator[pa.RecordBatch]:
    """The wanted columns of one file as text.

    Raises:
        DataFormatError: It isn't delimited text in UTF-8.
        SchemaError: Columns are missing or named twice.
    """
    names = header(path, delimiter)
    tables.check_header(names, wanted, str(path), delimiter=delimiter)
    used = list(dict.fromkeys(name for group in wanted.values() for name in group))
    unfit: list[arrow_csv.InvalidRow] = []

    def note(row: arrow_csv.InvalidRow) -> str:
        unfit.append(row)
        return "error"

    row = 0
    last: pa.RecordBatch | None = None
    with raw_files.opened(path) as stream:
        text = _CheckedText(stream, path, delimiter.join([END] * len(names)))
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(text, mode="r"),
                read_options=arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(used, pa.string()), include_columns=used, strings_can_be_null=False
                ),
            )
            for batch in reader:
                if batch.num_rows == 0:
                    continue
                if last is not None:
                    row += last.num_rows
                    yield last
                last = batch
        except pa.ArrowInvalid as error:
            raise _parse_error(error, unfit, path, row + (last.num_rows if last else 0)) from error
    if last is None or last.column(0)[-1].as_py() != END:
        raise DataFormatError("a quoted value is never closed", file=path, row=row + (last.num_rows if last else 1) - 1)
    yield last.slice(0, last.num_rows - 1)


class _CheckedText:
    """A stream of bytes that must be UTF-8, with one more record at its end.

    That record is how an unclosed quote is noticed: pyarrow takes the rest of the file for the value and says nothing.
    """

    closed = False

    def __init__(self, stream: BinaryIO, path: Path, end: str) -> None:
        self._stream, self._path = stream, path
        self._end: bytes | None = f"\n{end}\n".encode()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._seen = 0

    def read(self, size: int) -> bytes:
        if self._end is None:
            return b""
        data = self._stream.read(size)
        held = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            at = self._seen - held + error.start
            raise DataFormatError(
                f"not valid UTF-8 at byte {at}", file=self._path, got=f"0x{error.object[error.start]:02x}",
                cure="convert the file to UTF-8",
            ) from error  # fmt: skip
        self._seen += len(data)
        if not data:
            data, self._end = self._end, None
        return data

    def close(self) -> None:
        self.closed = True


def header(path: Path, delimiter: str) -> list[str]:
    """Names of the columns of one file.

    Raises:
        DataFormatError: It is empty, not in UTF-8, or no delimited text.
    """
    with raw_files.opened(path) as stream:
        head = stream.read(1 << 20)
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            raise DataFormatError(
                f"file is {encoding} (BOM {mark.hex(' ').upper()}); expected UTF-8",
                file=path,
                cure="convert it to UTF-8",
            )
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    try:
        return next(record for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if record)
    except StopIteration:
        raise DataFormatError("empty file, no header", file=path) from None
    except csv.Error as error:
        raise DataFormatError("the header can't be read", file=path, got=error) from error


def _parse_error(error: pa.ArrowInvalid, unfit: list[arrow_csv.InvalidRow], path: Path, row: int) -> DataFormatError:
    if unfit and END not in unfit[0].text:
        first = unfit[0]
        return DataFormatError(
            "a row has another number of values than the header", file=path,
            row=None if first.number is None else f"{first.number - 2} (data rows are counted from 0)",
            expected=first.expected_columns, got=f"{first.actual_columns}: {first.text[:80]!r}",
        )  # fmt: skip
    if unfit or "straddling" in str(error):
        what = "a quoted value is never closed" if unfit else f"a record is longer than {BLOCK >> 20} MiB"
        cure = None if unfit else "is a quote never closed?"
        return DataFormatError(what, file=path, row=f"{row} or later", cure=cure)
    return DataFormatError("not delimited text", file=path, row=f"{row} or later", got=error)
