"""Raw files from mirrors or from a folder: only the pinned bytes ever stand at their final path, uncompressed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import os
import random
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datasets.errors import DataFormatError, FetchError, StoreError, TransientError
from datasets.readers import raw
from datasets.schema import RawFile
from tasks.durable import fsync_dir
from tasks.unpacked import Unpacked

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and, where the server says so, the bytes of the whole."""

PIECE = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
LONGEST_PAUSE = 30.0
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBUSY, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}
TRY_AGAIN = {408, 425, 429}  # besides 5xx


class MirrorFailed(Exception):  # noqa: N818
    """One try at one mirror failed; caught in this file.

    Attributes:
        reason: For the list of what was tried.
        again: Whether the same mirror may do better a little later.
        pause: Seconds that the server asks to wait.
    """

    def __init__(self, reason: str, *, again: bool, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.again, self.pause = reason, again, pause


def fetch_file(
    file: RawFile, mirrors: Sequence[str], suffix: str, target: Path, *,
    partial: Path | None = None, progress: Progress | None = None, attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep, rng: random.Random | None = None,
) -> Path:  # fmt: skip
    """Downloads a raw file from the first mirror that gives the pinned bytes.

    A download that was cut goes on where it stopped, in this call or in a later one. A mirror that answers 5xx, 408,
    425 or 429, refuses, times out or breaks off is asked again with growing, jittered pauses; one that answers anything
    else is left for the next.

    Without a digest, any body is taken that is certain to be whole and isn't a web page in front of other data.

    Args:
        file: What to fetch.
        mirrors: Base addresses, http or https.
        suffix: Of the file's name at the mirrors; whether the body is gzip is seen by its first bytes.
        target: Folder for the uncompressed file.
        partial: Folder that keeps unfinished downloads; `target` if None.
        progress: Told about bytes received.
        attempts: Most tries a mirror.
        sleep: Waits a number of seconds.
        rng: Of the jitter.

    Returns:
        `target / file.name`, verified; if it was already there, nothing is downloaded.

    Raises:
        FetchError: No mirror gave the pinned bytes; lists each with its status or reason.
        TransientError: Every mirror had trouble that may pass, or the disk had.
        StoreError: The target can't be written.
    """
    final = target / file.name
    if file.sha256 and final.is_file() and _difference(file, *_content(final, None, file.bytes)) is None:
        return final
    rng = rng or random.Random()  # noqa: S311 - jitter
    tried: list[tuple[str, MirrorFailed]] = []
    parts = partial or target
    urls = [f"{mirror.rstrip('/')}/{urllib.parse.quote(file.name + suffix)}" for mirror in mirrors]
    with _disk_errors(final):
        parts.mkdir(parents=True, exist_ok=True)
        final.parent.mkdir(parents=True, exist_ok=True)
        for url in urls:
            try:
                with _part(parts, url) as part:
                    _fetch_patiently(url, part, file, final, suffix, progress, attempts, sleep, rng)
            except MirrorFailed as failed:
                tried.append((url, failed))
            else:
                for other in urls:
                    with _part(parts, other) as part:
                        _empty(part)
                return final
    listed = "".join(f"\n    {url}: {failed.reason}" for url, failed in tried) or "no mirror is known"
    if tried and all(failed.again for _, failed in tried):
        raise TransientError(
            f"no mirror could deliver {file.name!r} at this time",
            tried=listed,
            cure="try again later, or give a folder",
        )
    raise FetchError(
        f"no mirror gave the pinned bytes of {file.name!r}", tried=listed, expected=f"sha256 {file.sha256}",
        cure="give a folder that holds the raw files",
    )  # fmt: skip


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
    with _disk_errors(target / file.name):
        (target / file.name).parent.mkdir(parents=True, exist_ok=True)
        difference = _place(source, file, target / file.name)
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
    if file.sha256 and (difference := _difference(file, digest, size)):
        raise _not_pinned(source, file, difference)
    return RawFile(file.name, digest, size)


def digest_of(path: Path, known: Unpacked | None = None) -> tuple[str, int]:
    """SHA-256 and size of the uncompressed content of a file; `known` as for `pinned`.

    Raises:
        DataFormatError: It is a damaged gzip file.
        TransientError: The disk had trouble.
        StoreError: It can't be read.
    """
    with _disk_errors(path):
        return _unpacked(path, sys.maxsize, known)


def _not_pinned(source: Path, file: RawFile, difference: str) -> FetchError:
    return FetchError(
        "raw file isn't the one that the dataset pins", file=source,
        expected=f"sha256 {file.sha256}, {file.bytes} bytes", got=difference,
        cure="give the folder of the original files, or pin the new file in the dataset file",
    )  # fmt: skip


def _fetch_patiently(
    url: str, part: Path, file: RawFile, final: Path, suffix: str, progress: Progress | None, attempts: int,
    sleep: Callable[[float], None], rng: random.Random,
) -> None:  # fmt: skip
    for attempt in range(1, attempts + 1):
        try:
            certain = _download(url, part, _largest_body(file), progress)
            if certain or file.sha256:
                reason = _check_and_place(part, file, final, suffix)
            else:
                reason = "without a pinned digest, a body must come in one piece from a server that says how long it is"
            _empty(part)
            if reason is None:
                return
            # After a resumption, or when the server didn't say how much to expect, the fault may be the transfer's.
            raise MirrorFailed(reason, again=not certain)
        except MirrorFailed as failed:
            if not failed.again:
                _empty(part)
                raise
            if attempt == attempts:
                raise MirrorFailed(f"{failed.reason} ({attempts} attempts)", again=True) from failed
            # Exponential back-off with jitter, so that many clients don't come back at once.
            pause = min(LONGEST_PAUSE, 0.5 * 2 ** (attempt - 1)) * (0.5 + rng.random())
            sleep(max(pause, min(failed.pause, LONGEST_PAUSE)))


def _download(url: str, part: Path, largest: int, progress: Progress | None) -> bool:
    """Appends to `part` until it holds the whole body; gives whether that is certain to be one server's one body."""
    with part.open("ab") as out:
        done = out.tell()
        response = _ask(url, done)
        if response is None:  # nothing was missing
            return False
        with response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            if not resumed or not str(response.headers.get("Content-Range")).startswith(f"bytes {done}-"):
                out.truncate(0)
                if resumed:
                    raise MirrorFailed("the server resumed at another byte", again=True)
                done = 0
            total = None if response.length is None else done + response.length
            if total is not None and total > largest:
                raise MirrorFailed(f"a body of {total} bytes is too large, most is {largest}", again=False)
            for piece in _pieces(response):
                out.write(piece)
                done += len(piece)
                if done > largest:
                    raise MirrorFailed(f"a body of more than {largest} bytes is too large", again=False)
                if progress:
                    progress(done, total)
            if total is not None and done < total:
                raise MirrorFailed(f"connection broke off after {done} of {total} bytes", again=True)
    # A chunked body states its own end.
    return not resumed and (total is not None or response.chunked)


def _ask(url: str, done: int) -> http.client.HTTPResponse | None:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise MirrorFailed("not an http or https address", again=False)
    # Without "identity" a server may compress on the way, and lengths and ranges would be those of another body.
    headers = {"User-Agent": "gristmill", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        # A fresh opener sees the proxy settings of now, not those of the process's first request.
        return urllib.request.build_opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
                if error.headers.get("Content-Range") == f"bytes */{done}":
                    return None
                return _ask(url, 0)
            again = error.code >= 500 or error.code in TRY_AGAIN
            pause = error.headers.get("Retry-After") or ""
            wait = float(pause) if pause.isdecimal() else 0.0
            raise MirrorFailed(f"{error.code} {error.reason}", again=again, pause=wait) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        again = not isinstance(cause, ssl.SSLCertVerificationError | http.client.InvalidURL | ValueError)
        raise MirrorFailed(f"{type(cause).__name__}: {cause}", again=again) from error


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            piece = response.read(PIECE)
        except (OSError, http.client.HTTPException) as error:
            raise MirrorFailed(f"connection broke off: {type(error).__name__}: {error}", again=True) from error
        if not piece:
            return
        yield piece


def _check_and_place(part: Path, file: RawFile, final: Path, suffix: str) -> str | None:
    with part.open("rb") as body:
        start = body.read(256)
    if not file.sha256 and (reason := _no_data(start, file.name, suffix)):
        return reason
    try:
        difference = _place(part, file if file.sha256 else RawFile(file.name, *digest_of(part)), final)
    except DataFormatError as error:
        return f"{error.what} ({part.stat().st_size} bytes)"
    if difference and suffix == ".gz" and not start.startswith(raw.GZIP_MAGIC):
        return f"body is not gzip (starts {start[:4]!r}), {difference}"
    return difference


def _no_data(start: bytes, name: str, suffix: str) -> str | None:
    """Why the first bytes of a body can't be those of a raw file whose digest nobody knows."""
    if suffix == ".gz" and not start.startswith(raw.GZIP_MAGIC):
        return f"body is not gzip (starts {start[:4]!r})"
    page = start.lstrip().lower().startswith((b"<!doctype html", b"<html"))
    if page and not name.lower().endswith((".html", ".htm")):
        return "body is a web page"
    return None


def _place(source: Path, file: RawFile, final: Path) -> str | None:
    """Stores the uncompressed content of `source` at `final` if it is the pinned one; else says how it differs."""
    temporary = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb") as out:
            difference = _difference(file, *_content(source, out, file.bytes))
            if difference:
                return difference
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(final.parent)
    return None


def _unpacked(source: Path, most: int, known: Unpacked | None) -> tuple[str, int]:
    packed = known.packed(source) if known is not None else None
    if known is None or packed is None:
        return _content(source, None, most)
    content = known.content(packed)
    if content is None:
        content = _content(source, None, most)
        if content[1] <= most:
            known.see(source, packed, content)
    return content


def _content(source: Path, out: BinaryIO | None, most: int) -> tuple[str, int]:
    """SHA-256 and size of the uncompressed content, copied to `out`; stops soon after `most` bytes (gzip bombs)."""
    digest, size = hashlib.sha256(), 0
    with raw.opened(source) as stream:
        while size <= most and (piece := stream.read(PIECE)):
            digest.update(piece)
            size += len(piece)
            if out and size <= most:
                out.write(piece)
    return digest.hexdigest(), size


def _difference(file: RawFile, digest: str, size: int) -> str | None:
    if size > file.bytes:
        return f"more than the pinned {file.bytes} bytes"
    if (digest, size) != (file.sha256, file.bytes):
        return f"sha256 expected {file.sha256} got {digest}, {size} bytes of {file.bytes}"
    return None


def _largest_body(file: RawFile) -> int:
    if not file.sha256:
        return sys.maxsize
    # What deflate can't shrink it stores with a few bytes a block; a little more leaves room for error pages.
    return file.bytes + file.bytes // 1000 + (1 << 16)


def _empty(part: Path) -> None:
    # Not removed: the lock is on this file.
    if part.is_file():
        os.truncate(part, 0)


def _part_name(url: str) -> str:
    return f".{hashlib.sha256(url.encode()).hexdigest()[:16]}.part"


@contextmanager
def _part(folder: Path, url: str) -> Iterator[Path]:
    """The unfinished download of `url`; one of its own while another process is at work on the same."""
    path = folder / _part_name(url)
    with path.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shared = _is_open_at(held, path)
        except BlockingIOError:
            shared = False
        part = path if shared else folder / f"{path.name}.{uuid.uuid4().hex[:8]}"
        try:
            yield part
        finally:
            if part.is_file() and (not shared or part.stat().st_size == 0):
                part.unlink()


def _is_open_at(held: BinaryIO, path: Path) -> bool:
    # The process that held the lock before may have removed the file since we opened it.
    try:
        return os.path.samestat(os.fstat(held.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = TransientError if error.errno in PASSING else StoreError
        raise kind(
            "can't read or write a raw file", file=error.filename or path, got=error.strerror or error
        ) from error
