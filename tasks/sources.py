r"""Raw files that no list names: the files of a folder that match a pattern, found anew whenever a run starts.

A file is known by its name in the folder and by the SHA-256 of its uncompressed content; where the folder lies doesn't
matter. The rules:

- A pattern is held against the whole name: "*" and "?" stay within a folder, "**" doesn't; "**" alone is every file.
- Hidden files and what systems leave (`images.LEFTOVERS`) are no data; they are counted and logged, and so are empty
  folders.
- ".gz" at the end of a name is dropped, because raw files are stored uncompressed.
- Links are followed, to files and to folders. What is neither file nor folder is refused.
- Bytes in a name that aren't UTF-8 are stored escaped (`a\xff.png`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from datasets.errors import FetchError
from datasets.readers import archives
from datasets.readers.ignored import note
from datasets.readers.images import LEFTOVERS
from datasets.readers.pixels import shown
from datasets.schema import RawFile
from tasks.raw_content import digest_of
from tasks.unpacked import Unpacked


def files_below(folder: Path, pattern: str) -> dict[str, Path]:
    """The raw files of a folder that match, by the name under which each is stored, sorted.

    Raises:
        FetchError: The folder isn't there or holds no such file; two files would have one name; a link leads back to a
            folder above itself; something is neither file nor folder.
    """
    if not folder.is_dir():
        raise FetchError("the raw folder doesn't exist", folder=folder)
    matches, ignored = matcher(pattern), Counter[str]()
    found: dict[str, Path] = {}
    for path in _walk(folder, ignored, (os.path.realpath(folder),)):
        name = stored_name(shown(path.relative_to(folder).as_posix()))
        if not matches(name):
            continue
        if not path.is_file():
            raise FetchError("neither a file nor a folder", file=shown(str(path)), cure="move it out of the raw folder")
        if name in found:
            raise FetchError(
                "two raw files would be stored under one name", folder=folder, got=f"{found[name].name}, {path.name}",
                expected=name, cure="keep one of them",
            )  # fmt: skip
        found[name] = path
    note(ignored, folder)
    if not found:
        raise FetchError(
            "no raw file matches", folder=folder, expected=pattern, cure="name the folder of the raw files"
        )
    return {name: found[name] for name in sorted(found)}


def listed(folder: Path, pattern: str, known: Unpacked | None = None) -> tuple[RawFile, ...]:
    """The raw files of a folder that match, each with the digest that it has now; `known` as for `digest_of`.

    Raises:
        FetchError: As `files_below`.
        DataFormatError: A file is damaged gzip.
    """
    return tuple(RawFile(name, *digest_of(path, known)) for name, path in files_below(folder, pattern).items())


def matcher(pattern: str):  # noqa: ANN201 - a bound method of a compiled expression
    """A function that says whether a name matches a pattern, by the rules at the top of this file."""
    marks = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(marks.get(part, re.escape(part)) for part in parts), re.DOTALL).fullmatch


def stored_name(name: str) -> str:
    """The name of a raw file when its content is uncompressed."""
    return name.removesuffix(".gz")


def unpack(folder: Path, names: list[str]) -> None:
    """Replaces zip and tar files of a folder by the files in them, each in a folder named as the archive.

    Raises:
        DataFormatError: A file is no zip or tar, or isn't safe to unpack.
        FetchError: The folder of an archive is there already.
    """
    for name in names:
        packed = folder / name
        target = packed.with_name(archive_stem(packed.name))
        if target.exists():
            raise FetchError("an archive would be unpacked over other files", file=name, got=target.name)
        archives.extract(packed, target)
        packed.unlink()


def archive_stem(name: str) -> str:
    """Name of the folder of an archive's files: "cats" for "cats.tar.gz"."""
    stem = PurePosixPath(stored_name(name)).stem
    return stem if stem != name else f"{name}.d"


def _walk(folder: Path, ignored: Counter[str], above: tuple[str, ...]) -> Iterator[Path]:
    entries = sorted(folder.iterdir(), key=os.fsencode)
    if not entries and len(above) > 1:
        ignored[f"empty folder {shown(folder.name)}"] += 1
    for path in entries:
        if path.name.startswith(".") or path.name in LEFTOVERS:
            ignored["hidden" if path.name.startswith(".") else path.name] += 1
        elif path.is_dir():
            real = os.path.realpath(path)
            if real in above:
                raise FetchError("a link leads back to a folder above it", file=shown(str(path)), got=shown(real))
            yield from _walk(path, ignored, (*above, real))
        else:
            yield path
