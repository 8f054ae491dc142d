"""Finding and opening raw files: under which names they are looked for, gzip or not by content."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from datasets.errors import DataFormatError, FetchError

GZIP_MAGIC = b"\x1f\x8b"


def names_of(name: str, suffix: str = ".gz") -> tuple[str, ...]:
    """Names under which a raw file is looked for, in this order.

    Besides `name` and `name` + `suffix` these are the dotted spelling of IDX files, which some archives use:
    train-images.idx3-ubyte for train-images-idx3-ubyte.
    """
    dotted = name.replace("-idx", ".idx")
    return tuple(dict.fromkeys(f"{base}{end}" for base in (name, dotted) for end in ("", suffix, ".gz")))


def find(folder: Path, name: str, suffix: str = ".gz") -> Path:
    """The file `name` in `folder`, under the first of the names of `names_of` that exists.

    Raises:
        FetchError: None of them is there; lists the names and what the folder holds.
    """
    names = names_of(name, suffix)
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    if not folder.is_dir():
        raise FetchError("the raw folder doesn't exist", folder=folder, looked_for=", ".join(names))
    found = sorted(path.name for path in folder.iterdir())
    listed = ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
    raise FetchError(
        f"raw file {name!r} isn't there",
        folder=folder,
        looked_for=", ".join(names),
        folder_holds=listed or "nothing",
        cure="name the folder that holds the raw files",
    )


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens the uncompressed content of a file; its first two bytes, not its name, say whether it is gzip.

    Zero padding after the last gzip member is accepted, as the gzip program does.

    Raises:
        DataFormatError: While reading: the gzip stream is truncated, fails its CRC, or other bytes follow it.
    """
    with path.open("rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield cast("BinaryIO", stream)
        except EOFError as error:
            raise DataFormatError("gzip file is truncated", file=path, cure="fetch it again") from error
        except gzip.BadGzipFile as error:
            crc = "CRC" in str(error) or "length" in str(error)
            what = "gzip file fails its CRC check" if crc else "gzip file is followed by trailing data"
            raise DataFormatError(what, file=path, got=str(error), cure="fetch it again") from error
        except zlib.error as error:
            raise DataFormatError("gzip file is corrupt", file=path, got=str(error), cure="fetch it again") from error
