"""What kind of data is at a path, by the endings of its names; anything that can't be told is refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from datasets.errors import ParameterError
from datasets.readers import delimited, images, jsonl, parquet
from tasks import scaffold_idx
from tasks.scaffold_arrays import look_at_arrays
from tasks.scaffold_images import look_at_images
from tasks.scaffold_tables import look_at_table
from tasks.scaffold_text import Place, Sketch
from tasks.sources import archive_stem, stored_name

ENDINGS = {
    "pictures": images.ENDINGS,
    "delimited": delimited.ENDINGS,
    "parquet": parquet.ENDINGS,
    "jsonl": jsonl.ENDINGS,
    "npz": (".npz",),
    "idx": scaffold_idx.ENDINGS,
}
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
KNOWN = "folders of pictures, CSV, TSV, Parquet, JSON Lines, npz, IDX; also in a zip or tar"


def look(path: Path, label: str | None) -> Sketch:
    """A sketch of the dataset at a path.

    Args:
        path: File or folder that exists.
        label: Name of the column or array to predict, or None.

    Raises:
        ParameterError: No known format, several at once, or no telling what is to be predicted.
        DataError: Damaged data.
    """
    if path.is_file() and path.name.lower().endswith(ARCHIVES):
        place = Place(path.parent, stored_name(path.name), archive=True, where=archive_stem(stored_name(path.name)))
        if not (path.parent / str(place.file)).exists():
            place.file = path.name
            place.where = archive_stem(path.name)
        with place.opened() as folder:
            while len(inside := list((folder / place.where).iterdir())) == 1 and inside[0].is_dir():
                place.where = f"{place.where}/{inside[0].name}"  # archives of a folder hold the folder
            return _sketch(format_of(folder / place.where), place, folder, label)
    if path.is_file():
        place = Place(path.parent, stored_name(path.name), where=stored_name(path.name))
        return _sketch(_format_of_file(path), place, path.parent, label)
    return _sketch(format_of(path), Place(path), path, label)


def format_of(folder: Path) -> str:
    """The one format of the files of a folder.

    Raises:
        ParameterError: There is none, or more than one.
    """
    found: dict[str, str] = {}
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        for name in sorted(files):
            kind = None if _hidden(name) or name.startswith("_") else _kind(name)
            if kind is not None and not name.lower().endswith((".txt", ".txt.gz", ".json", ".json.gz")):
                found.setdefault(kind, os.path.relpath(os.path.join(base, name), folder))  # noqa: PTH118
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise ParameterError("no data that is known is here", parameter="path", got=folder, expected=KNOWN)
    listed = ", ".join(f"{kind} ({name})" for kind, name in sorted(found.items()))
    raise ParameterError(
        "files of several formats: which are the data?", parameter="path", got=listed, folder=folder,
        cure="give the path of one of them, or move the others away",
    )  # fmt: skip


def _format_of_file(path: Path) -> str:
    kind = _kind(path.name)
    folders = {
        "pictures": "give the folder with a folder of pictures for each class",
        "idx": "give the folder of the files of examples and labels",
    }
    if kind is None or kind in folders:
        cure = folders.get(kind or "")
        raise ParameterError("a file of another kind", parameter="path", got=path, expected=KNOWN, cure=cure)
    if kind == "npz" and not zipfile.is_zipfile(path):
        raise ParameterError("this is no npz file", parameter="path", got=path)
    return kind


def _kind(name: str) -> str | None:
    return next((kind for kind, endings in ENDINGS.items() if name.lower().endswith(endings)), None)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in images.LEFTOVERS


def _sketch(kind: str, place: Place, folder: Path, label: str | None) -> Sketch:
    if kind == "pictures":
        if label is not None:
            raise ParameterError("the folders of pictures are the label", parameter="label", got=label)
        return look_at_images(place, folder)
    if kind == "idx":
        if label is not None:
            raise ParameterError("the files of labels are the label", parameter="label", got=label)
        return scaffold_idx.look_at_idx(place, folder)
    if kind == "npz":
        return look_at_arrays(place, folder, label)
    return look_at_table(kind, place, folder, label)
