"""Zip and tar archives, unpacked safely: nothing lands outside, nothing but plain files, and not more than allowed.

An archive is refused as a whole, with nothing left behind, for a member with an absolute name or "..", a link or
device, a name twice, an encrypted or damaged member, too many or too large members. Limits are on bytes as they come
out, not on what headers promise. Zip, tar and tar with gzip, bzip2 or xz are told apart by content.
"""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from datasets.errors import DataFormatError

PIECE = 1 << 20
MOST_BYTES = 64 << 30
MOST_FILES = 2_000_000
MOST_RATIO = 200  # of unpacked to packed, where more than FREE_BYTES come out
FREE_BYTES = 256 << 20


@contextmanager
def extracted(
    archive: Path, *, within: Path | None = None, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES
) -> Iterator[Path]:
    """A temporary folder with the members of an archive, for a reader; removed afterwards.

    Args:
        archive: Zip or tar.
        within: Where to make the folder; the system's place for temporary files if None.
        most_bytes: Limit of all members together.
        most_files: Limit of their number.

    Raises:
        DataFormatError: No zip or tar, or one that isn't safe; names the member.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-", dir=within) as folder:
        extract(archive, Path(folder), most_bytes=most_bytes, most_files=most_files)
        yield Path(folder)


def extract(archive: Path, target: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> list[str]:
    """Unpacks an archive into `target`, an empty or new folder, which is emptied again on any error.

    Returns:
        Names of the files, sorted.

    Raises:
        DataFormatError: As `extracted`.
    """
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise DataFormatError("an archive is unpacked into an empty folder", file=target)
    names: set[str] = set()
    budget = min(most_bytes, max(FREE_BYTES, MOST_RATIO * archive.stat().st_size))
    try:
        for name, stream in _members(archive):
            path = _safe(name, archive)
            if str(path) in names:
                raise _unsafe("a name is there twice", archive, name)
            names.add(str(path))
            if len(names) > most_files:
                raise _unsafe(f"more than {most_files} files", archive, name)
            budget -= _copy(stream, target / path, budget, archive, name)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError,
            NotImplementedError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:  # fmt: skip
        _empty(target)
        raise DataFormatError("damaged or unreadable archive", file=archive, got=error) from error
    except BaseException:
        _empty(target)
        raise
    return sorted(names)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as members:
            for info in members.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _unsafe("a member is no plain file (a link or device)", archive, info.filename)
                _safe(info.filename, archive)
                if not info.is_dir():
                    with members.open(info) as stream:
                        yield info.filename, stream
        return
    try:
        opened = tarfile.open(archive, "r:*")  # noqa: SIM115 - closed below
    except tarfile.ReadError as error:
        with archive.open("rb") as file:
            raise DataFormatError("neither zip nor tar", file=archive, got=f"starts {file.read(8)!r}") from error
    with opened:
        for info in opened:
            if not (info.isreg() or info.isdir()):
                raise _unsafe("a member is no plain file (a link or device)", archive, info.name)
            _safe(info.name, archive)
            stream = opened.extractfile(info)
            if stream is not None:
                with stream:
                    yield info.name, stream


def _safe(name: str, archive: Path) -> PurePosixPath:
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    # Windows counts both slashes, so its rules hold those of POSIX.
    if windows.drive or windows.root or ".." in (*path.parts, *windows.parts) or "\0" in name:
        raise _unsafe("a member's name leads out of the archive", archive, name)
    return path


def _copy(stream: IO[bytes], path: Path, budget: int, archive: Path, name: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with path.open("xb") as out:
        while piece := stream.read(PIECE):
            size += len(piece)
            if size > budget:
                raise _unsafe("the archive unpacks to more than is allowed", archive, name)
            out.write(piece)
    return size


def _unsafe(what: str, archive: Path, member: str) -> DataFormatError:
    return DataFormatError(f"unsafe archive: {what}", file=archive, member=repr(member))


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
