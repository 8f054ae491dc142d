"""Raw files from mirrors: patient, resumable, and only the pinned bytes ever stand at their final path."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import sys
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datasets.errors import DataFormatError, FetchError, TransientError
from datasets.readers import raw
from datasets.schema import RawFile
from tasks.mirror import MirrorFailed, Progress, download
from tasks.raw_content import difference_from, digest_of, disk_errors, place, read_through

LONGEST_PAUSE = 30.0


def fetch_file(
    file: RawFile, mirrors: Sequence[str], suffix: str, target: Path, *,
    partial: Path | None = None, progress: Progress | None = None, attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep, rng: random.Random | None = None,
) -> Path:  # fmt: skip
    """Downloads a raw file from the first mirror that gives the pinned bytes.

    A download that was cut goes on where it stopped, in this call or in a later one. A mirror that answers 5xx, 408,
    425 or 429, refuses, times out or breaks off is asked again with growing, jittered pauses; one that answers anything
    else is left for the next.

    Without a digest, any body is taken that is certain to be whole and is neither empty nor a web page in front of
    other data.

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
    if file.sha256 and final.is_file() and difference_from(file, *read_through(final, None, file.bytes)) is None:
        return final
    rng = rng or random.Random()  # noqa: S311 - jitter
    tried: list[tuple[str, MirrorFailed]] = []
    parts = partial or target
    urls = [f"{mirror.rstrip('/')}/{urllib.parse.quote(file.name + suffix)}" for mirror in mirrors]
    with disk_errors(final):
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
        f"no mirror gave {'the pinned bytes of ' if file.sha256 else ''}{file.name!r}", tried=listed,
        expected=f"sha256 {file.sha256}" if file.sha256 else None, cure="give a folder that holds the raw files",
    )  # fmt: skip


def _fetch_patiently(
    url: str, part: Path, file: RawFile, final: Path, suffix: str, progress: Progress | None, attempts: int,
    sleep: Callable[[float], None], rng: random.Random,
) -> None:  # fmt: skip
    for attempt in range(1, attempts + 1):
        try:
            certain = download(url, part, _largest_body(file), progress)
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


def _check_and_place(part: Path, file: RawFile, final: Path, suffix: str) -> str | None:
    with part.open("rb") as body:
        start = body.read(256)
    if not file.sha256 and (reason := _no_data(start, file.name, suffix)):
        return reason
    try:
        known = file if file.sha256 else RawFile(file.name, *digest_of(part))
        if not file.sha256 and not known.bytes:  # to pin that would refuse the data when it comes
            return "body is empty"
        difference = place(part, known, final)
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
