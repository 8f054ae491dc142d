"""Raw files in object stores, through fsspec: s3://, gs://, memory:// and whatever else it knows.

The client of a protocol is an optional extra (`pip install s3fs`); fsspec itself isn't. An object's version is its size
and the first of ETag, MD5, CRC and time of change that its store tells: it says whether the object was changed.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.errors import FetchError, GristmillError, ParameterError, TransientError
from datasets.schema import RawFile
from tasks.mirror import Progress
from tasks.raw_content import copy_file, digest_of
from tasks.sources import matcher, stored_name

PIECE = 1 << 20
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "crc32c", "mtime", "LastModified", "updated", "created")
EXTRAS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
LASTING = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR}


@dataclass(frozen=True)
class RemoteFile:
    """An object in a store.

    Attributes:
        name: Under which it is stored here, relative to the base address.
        path: In its file system.
        version: Its size and what else its store tells that changes when the object does.
    """

    name: str
    path: str
    version: str


def is_remote(url: str) -> bool:
    """Whether fsspec is asked for an address; http and https have their own downloads, with resumption."""
    return "://" in url and not url.startswith(("http://", "https://"))


def look_up(url: str, names: tuple[str, ...], suffix: str) -> tuple[RemoteFile, ...]:
    """Named objects below an address, under `name` + `suffix` or `name`.

    Raises:
        FetchError: One isn't there, or may not be read.
        ParameterError: No such protocol, or its client isn't installed.
        TransientError: The store had trouble.
    """
    with _errors(url) as (system, root):
        return tuple(_remote(system, f"{root}/{name}", name, suffix) for name in names)


def find(url: str, pattern: str) -> tuple[RemoteFile, ...]:
    """All objects below an address that match (see `tasks.sources`), by name.

    Raises:
        FetchError: There is none, or they may not be listed.
        ParameterError: No such protocol, or its client isn't installed.
        TransientError: The store had trouble.
    """
    matches = matcher(pattern)
    with _errors(url) as (system, root):
        system.invalidate_cache()
        below = {path: info for path, info in system.find(root, detail=True).items() if info["type"] == "file"}
    found: dict[str, RemoteFile] = {}
    for path, info in sorted(below.items()):
        name = stored_name(path.removeprefix(root).lstrip("/"))
        if any(part.startswith(".") for part in name.split("/")) or not matches(name):
            continue
        if name in found:
            raise FetchError("two objects would be stored under one name", url=url, expected=name)
        found[name] = _described(name, path, info)
    if not found:
        raise FetchError("no object matches", url=url, expected=pattern)
    return tuple(found[name] for name in sorted(found))


def download(url: str, remote: RemoteFile, target: Path, progress: Progress) -> RawFile:
    """Streams an object into `target`, uncompressed; gives the digest of what it holds.

    Raises:
        FetchError: It is gone.
        TransientError: The store had trouble, or the object was changed meanwhile.
        DataFormatError: It is damaged gzip.
    """
    part = target / f".{uuid.uuid4().hex}.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _errors(url) as (system, _), system.open(remote.path, "rb") as body, part.open("xb") as out:
            size, before = 0, _now(system, remote)
            while piece := body.read(PIECE):
                out.write(piece)
                size += len(piece)
                progress(size, None)
            after = _now(system, remote)
        if before != after:
            raise TransientError("an object changed while it was read", url=url, file=remote.name)
        file = RawFile(remote.name, *digest_of(part))
        copy_file(part, file, target)
        return file
    finally:
        part.unlink(missing_ok=True)


def _remote(system: Any, path: str, name: str, suffix: str) -> RemoteFile:  # noqa: ANN401 - fsspec has no types
    for candidate in dict.fromkeys((f"{path}{suffix}", path)):
        if system.exists(candidate):
            system.invalidate_cache()
            return _described(name, candidate, system.info(candidate))
    raise FileNotFoundError(errno.ENOENT, "no such object", path)


def _now(system: Any, remote: RemoteFile) -> RemoteFile:  # noqa: ANN401
    # Some stores tell times in one form when they list objects and in another when they are asked for one.
    system.invalidate_cache()
    return _described(remote.name, remote.path, system.info(remote.path))


def _described(name: str, path: str, info: dict[str, Any]) -> RemoteFile:
    told = next((f", {key} {info[key]}" for key in VERSIONS if info.get(key) is not None), "")
    return RemoteFile(name, path, f"{info['size']} bytes{told}")


@contextmanager
def _errors(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of an address and the address in it; its troubles as errors of ours."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        yield system, root.rstrip("/")
    except GristmillError:
        raise
    except (ImportError, ValueError) as error:
        protocol = url.split("://")[0]
        cure = f"pip install {EXTRAS[protocol]}" if protocol in EXTRAS else None
        raise ParameterError(f"{protocol}:// can't be read", parameter="mirrors", got=error, cure=cure) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError) or error.errno in LASTING:
            raise FetchError("an object can't be read", url=url, got=f"{type(error).__name__}: {error}") from error
        raise TransientError("the object store had trouble", url=url, got=f"{type(error).__name__}: {error}") from error
