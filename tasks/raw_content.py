"""What a raw file holds, uncompressed: its digest, and a copy of it that is stored only if it is the pinned one."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datasets.errors import FetchError, StoreError, TransientError
from datasets.readers import raw
from datasets.schema import RawFile
from tasks.durable import fsync_dir
from tasks.unpacked import Unpacked

PIECE = 1 << 16
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBUSY, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}


def copy_local(folder: Path, file: RawFile, suffix: str, target: Path) -> Path:
    """Puts the uncompressed content of a raw file of `folder` into `target`, verified.

    Raises:
        FetchError: It isn't there, or it isn't the pinned file.
        DataFormatError: It is a damaged gzip file.
        TransientError: The disk had trouble.
        StoreError: The target can't be written.
    """
    return copy_file(raw.find(folder, file.name, suffix), file, target)


def copy_file(source: Path, file: RawFile, target: Path) -> Path:
    """Puts the uncompressed content of `source` into `target` under the raw file's name, verified.

    It is copied and never linked: what is edited in place later must not change what was stored.

    Raises:
        FetchError: It isn't the pinned file.
        DataFormatError: It is a damaged gzip file.
        TransientError: The disk had trouble.
        StoreError: The target can't be written.
    """
    with disk_errors(target / file.name):
        (target / file.name).parent.mkdir(parents=True, exist_ok=True)
        difference = place(source, file, target / file.name)
    if difference:
        raise _not_pinned(source, file, difference)
    return target / file.name


def pinned(folder: Path, file: RawFile, suffix: str, known: Unpacked | None = None) -> RawFile:
    """The raw file as it is in `folder`, pinned: with the SHA-256 and the size of its uncompressed content.

    Args:
        folder: Where it is.
        file: Its name, and what it was pinned to before, if it was.
        suffix: That its name may have besides.
        known: Gzip files that needn't be unpacked again.

    Raises:
        FetchError: It isn't there, or it isn't what it was pinned to before.
        DataFormatError: It is a damaged gzip file.
    """
    source = raw.find(folder, file.name, suffix)
    digest, size = _unpacked(source, file.bytes if file.sha256 else sys.maxsize, known)
    if file.sha256 and (difference := difference_from(file, digest, size)):
        raise _not_pinned(source, file, difference)
    return RawFile(file.name, digest, size)


def digest_of(path: Path, known: Unpacked | None = None) -> tuple[str, int]:
    """SHA-256 and size of the uncompressed content of a file; `known` as for `pinned`.

    Raises:
        DataFormatError: It is a damaged gzip file.
        TransientError: The disk had trouble.
        StoreError: It can't be read.
    """
    with disk_errors(path):
        return _unpacked(path, sys.maxsize, known)


def place(source: Path, file: RawFile, final: Path) -> str | None:
    """Stores the uncompressed content of `source` at `final` if it is the pinned one; else says how it differs."""
    temporary = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb") as out:
            difference = difference_from(file, *read_through(source, out, file.bytes))
            if difference:
                return difference
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(final.parent)
    return None


def read_through(source: Path, out: BinaryIO | None, most: int) -> tuple[str, int]:
    """SHA-256 and size of the uncompressed content, copied to `out`; stops soon after `most` bytes (gzip bombs)."""
    digest, size = hashlib.sha256(), 0
    with raw.opened(source) as stream:
        while size <= most and (piece := stream.read(PIECE)):
            digest.update(piece)
            size += len(piece)
            if out and size <= most:
                out.write(piece)
    return digest.hexdigest(), size


def difference_from(file: RawFile, digest: str, size: int) -> str | None:
    """How a content of this digest and size differs from the pinned one, if it does."""
    if size > file.bytes:
        return f"more than the pinned {file.bytes} bytes"
    if (digest, size) != (file.sha256, file.bytes):
        return f"sha256 expected {file.sha256} got {digest}, {size} bytes of {file.bytes}"
    return None


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raises TransientError for what the system refuses at this time, StoreError for what it refuses for good."""
    try:
        yield
    except OSError as error:
        kind = TransientError if error.errno in PASSING else StoreError
        raise kind(
            "can't read or write a raw file", file=error.filename or path, got=error.strerror or error
        ) from error


def _not_pinned(source: Path, file: RawFile, difference: str) -> FetchError:
    return FetchError(
        "raw file isn't the one that the dataset pins", file=source,
        expected=f"sha256 {file.sha256}, {file.bytes} bytes", got=difference,
        cure="give the folder of the original files, or pin the new file in the dataset file",
    )  # fmt: skip


def _unpacked(source: Path, most: int, known: Unpacked | None) -> tuple[str, int]:
    packed = known.packed(source) if known is not None else None
    if known is None or packed is None:
        return read_through(source, None, most)
    content = known.content(packed)
    if content is None:
        content = read_through(source, None, most)
        if content[1] <= most:
            known.see(source, packed, content)
    return content
