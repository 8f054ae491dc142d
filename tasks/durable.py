"""Files that survive a kill and a power cut: a temporary name, a sync, a rename, a sync of the folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from datasets.errors import ArtifactDamaged

PIECE = 1 << 18  # bytes


def write_bytes(path: Path, data: bytes) -> None:
    """Puts `data` at `path`, whole or not at all; a reader sees the old content or the new, never a mixture.

    Raises:
        OSError: Of the file system (full, read-only, folder gone); the old content is then still there.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        # The parent may be what's gone, or a plain file by now; the first error is the one to show.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_dir(path.parent)


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Writes `value` as JSON with sorted keys, so that equal values give equal bytes.

    Raises:
        ValueError: It holds NaN or an infinity, which JSON has not.
        TypeError: It holds something else that JSON has not.
        OSError: As `write_bytes`.
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, indent=1, ensure_ascii=False)
    write_bytes(path, f"{text}\n".encode())


def read_json(path: Path) -> Any:  # noqa: ANN401
    """The value in a JSON file.

    Raises:
        FileNotFoundError: There is no such file.
        ArtifactDamaged: What is there isn't JSON in UTF-8.
    """
    return as_json(path.read_bytes(), path)


def as_json(text: bytes, path: Path) -> Any:  # noqa: ANN401
    """The value in a JSON file whose bytes were read.

    Raises:
        ArtifactDamaged: They aren't JSON in UTF-8.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactDamaged("a JSON file can't be read", file=path, got=error) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't JSON")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 lower-case hex digits."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def sizes_below(folder: Path) -> dict[str, int]:
    """Bytes of every file below a folder, by its name from there, such as "deeper/weights".

    What goes meanwhile is left out.

    Raises:
        OSError: A folder can't be read.
    """
    found = {}
    for name, entry in entries_below(folder):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file():
                found[name] = entry.stat().st_size
    return found


def entries_below(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that isn't a folder, however deep below one, with its name from there; links to folders aren't followed.

    Every run looks at every artifact and source file that it uses, so names are texts: paths take three times as long.

    Raises:
        OSError: A folder can't be read.
    """
    todo = [""]
    for below in todo:
        with os.scandir(f"{folder}/{below}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{below}{entry.name}/")
                else:
                    yield f"{below}{entry.name}", entry


def remove(path: Path) -> None:
    """Removes a file, a link or a folder; it may be gone already."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def fsync_dir(folder: Path) -> None:
    """Makes the names in `folder` (files created, renamed, removed) survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Makes the content of a file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path, synced: Collection[Path] = ()) -> None:
    """Makes every name below `folder` and every file but `synced` survive a power cut; links aren't followed."""
    for base, _, names in os.walk(folder, topdown=False, onerror=_reraise):
        for name in names:
            path = Path(base, name)
            if path.is_file() and not path.is_symlink() and path not in synced:
                fsync_file(path)
        fsync_dir(Path(base))


def _reraise(error: OSError) -> NoReturn:
    raise error
