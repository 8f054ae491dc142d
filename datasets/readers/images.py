"""Folders of pictures: a folder a class, or a table of paths and labels; `pixels.py` has the rules for pixels.

File names end in one of `ENDINGS`. Hidden files and what systems leave (`__MACOSX`, `Thumbs.db`, `@eaDir`) are ignored,
counted and logged. Classes are the declared ones, by name: a folder that is missing or new moves no index.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa

from datasets.errors import DataFormatError, NoRecordsError, SchemaError
from datasets.readers import delimited, tables
from datasets.readers.faults import Faults
from datasets.readers.ignored import MANIFEST, note
from datasets.readers.pixels import WHITE, Fit, read_image, shown
from datasets.readers.unlabelled import left_out, stand_in
from datasets.readers.values import as_seen
from datasets.schema import Block, Feature

ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff",
           ".pbm", ".pgm", ".ppm", ".pnm")  # fmt: skip
LEFTOVERS = {"__MACOSX", "@eaDir", "Thumbs.db", "thumbs.db", "desktop.ini"}


@dataclass
class Found:
    """What is below a folder of class folders.

    Attributes:
        classes: Pictures by class name (in Unicode form NFC), both sorted; a folder without pictures is there as well.
        ignored: How many files were no pictures or in no class folder, by name or ending.
    """

    classes: dict[str, list[Path]] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)


def find_images(folder: Path) -> Found:
    """Looks through a folder with a folder a class; pictures may lie deeper in it.

    Raises:
        DataFormatError: There is no such folder, or no picture in it.
        SchemaError: Names of two class folders differ only by Unicode form or spaces.
    """
    if not folder.is_dir():
        raise DataFormatError("there's no folder of class folders", file=folder)
    found, spelled = Found(), {}
    for entry in sorted(folder.iterdir(), key=os.fsencode):
        if _is_leftover(entry.name):
            found.ignored[entry.name] += sum(len(files) for _, _, files in os.walk(entry)) if entry.is_dir() else 1
        elif entry.name == MANIFEST:
            continue
        elif not entry.is_dir():
            found.ignored[f"{entry.suffix} outside of class folders"] += 1
        else:
            name = unicodedata.normalize("NFC", shown(entry.name))
            if (other := spelled.setdefault(as_seen(name), entry.name)) != entry.name:
                raise SchemaError(
                    f"class folders {other!r} and {entry.name!r} differ only by Unicode form or spaces", file=folder,
                    got=f"{other!a} and {entry.name!a}", cure="merge them",
                )  # fmt: skip
            found.classes[name] = _images_below(entry, found.ignored)
    if not any(found.classes.values()):
        raise DataFormatError("0 images", file=folder, expected=f"class folders of files that end with {ENDINGS}")
    return found


def blocks(
    raw: Path, features: Mapping[str, Feature], *, under: str = "", image: str = "image", label: str = "label",
    fit: Fit | None = None, background: tuple[int, int, int] = WHITE, orient: bool = True,
) -> Iterator[Block]:  # fmt: skip
    """Pictures in a folder a class, one a block, by class name and then by file name.

    Args:
        raw: Folder of the raw files.
        features: The picture's and the label's; the label's classes are the names of the folders.
        under: Folder of the class folders, relative to `raw`.
        image: Name of the picture's feature.
        label: Name of the label's feature.
        fit: How a picture of another size is made to fit; None refuses it.
        background: What shows through transparent pixels and beside padded ones, RGB.
        orient: Whether to turn pictures as EXIF says.

    Yields:
        Blocks of one row; their file is the picture's, relative to `raw`, their row is 0.

    Raises:
        SchemaError: A folder is no class or holds no pictures, or a picture can't have the declared shape.
        DataFormatError: A picture is cut, damaged or too large, or there is none.
    """
    if left_out(label):
        yield from _unlabelled(raw, raw / under, features, image, label, fit=fit, background=background, orient=orient)
        return
    classes = features[label].classes
    found = find_images(raw / under)
    note(found.ignored, raw / under)
    for name, paths in found.classes.items():
        if name not in classes:
            raise SchemaError(f"folder {name!r} is no class", file=raw / under, expected=", ".join(map(repr, classes)))
        if not paths:
            raise SchemaError(f"class folder {name!r} has no images", file=raw / under / name)
    index = {name: np.array([i], features[label].dtype) for i, name in enumerate(classes)}
    for name, paths in found.classes.items():
        for path in paths:
            pixels = read_image(path, features[image], fit=fit, background=background, orient=orient)
            yield Block({image: pixels[None], label: index[name]}, shown(path.relative_to(raw).as_posix()), 0)


def listed(
    raw: Path, table: str, features: Mapping[str, Feature], *, image: str = "image", path: str = "path",
    columns: tables.ColumnNames | None = None, fill: Mapping[str, float] | None = None, delimiter: str = ",",
    fit: Fit | None = None, background: tuple[int, int, int] = WHITE, orient: bool = True,
) -> Iterator[Block]:  # fmt: skip
    """Pictures that a delimited table lists, one a block, in the order of the table.

    Args:
        raw: Folder of the raw files.
        table: Delimited file in it; a column holds paths relative to `raw`, others the other features.
        features: The picture's and those of the other columns.
        image: Name of the picture's feature.
        path: Name of the column of paths, with "/" between folders.
        columns: As for `delimited.blocks`, and so are `fill` and `delimiter`.
        fill: By feature, what stands for a missing value.
        delimiter: Between values.
        fit: As for `blocks`, and so are `background` and `orient`.
        background: What shows through transparent pixels and beside padded ones, RGB.
        orient: Whether to turn pictures as EXIF says.

    Yields:
        Blocks of one row; their file is the picture's, their row is 0.

    Raises:
        SchemaError: The table's values don't fit, a path leads out of `raw`, or a picture can't have the declared
            shape.
        DataFormatError: The table or a picture is missing, cut or damaged.
    """
    others = {name: feature for name, feature in features.items() if name != image}
    wanted = tables.wanted_columns(others, columns)
    [(source, name)] = tables.files_of(raw, table, delimited.ENDINGS)
    row = 0
    for batch in delimited.batches(source, wanted | {image: (path,)}, delimiter):
        faults, part = Faults(name), pa.Table.from_batches([batch])
        values = tables.convert(part, others, wanted, faults, row, fill or {})
        faults.raise_if_any()
        for i, text in enumerate(part.column(path).to_pylist()):
            file = _inside(raw, text, name, row + i)
            pixels = read_image(file, features[image], fit=fit, background=background, orient=orient)
            one = {key: pixels[None] if key == image else values[key][i : i + 1] for key in features}
            yield Block(one, PurePosixPath(text).as_posix(), 0)
        row += batch.num_rows
    if row == 0:
        raise NoRecordsError("0 records", file=source)


def _unlabelled(
    raw: Path, folder: Path, features: Mapping[str, Feature], image: str, label: str, *, fit: Fit | None,
    background: tuple[int, int, int], orient: bool,
) -> Iterator[Block]:  # fmt: skip
    """Every picture below a folder, by its path: no folder is a class."""
    if not folder.is_dir():
        raise DataFormatError("there's no folder of pictures", file=folder)
    paths = _images_below(folder, Counter())
    if not paths:
        raise DataFormatError("0 images", file=folder, expected=f"files that end with {ENDINGS}")
    for path in paths:
        pixels = read_image(path, features[image], fit=fit, background=background, orient=orient)
        columns = {image: pixels[None], label: stand_in(features[label], 1)}
        yield Block(columns, shown(path.relative_to(raw).as_posix()), 0)


def _is_leftover(name: str) -> bool:
    return name.startswith(".") or name in LEFTOVERS


def _images_below(folder: Path, ignored: Counter[str]) -> list[Path]:
    images = []
    for base, folders, files in os.walk(folder):
        for name in [name for name in folders if _is_leftover(name)]:
            folders.remove(name)
            ignored[name] += sum(len(inside) for _, _, inside in os.walk(Path(base, name)))
        for name in files:
            if _is_leftover(name):
                ignored["hidden" if name.startswith(".") else name] += 1
            elif name.lower().endswith(ENDINGS):
                images.append(Path(base, name))
            else:
                ignored[shown(Path(name).suffix or name)] += 1
    return sorted(images, key=os.fsencode)


def _inside(raw: Path, text: str, table: str, row: int) -> Path:
    name = PurePosixPath(text)
    if not text or name.is_absolute() or ".." in name.parts:
        raise SchemaError("a path leads out of the raw folder", file=table, row=row, got=repr(text))
    if not (raw / name).is_file():
        raise DataFormatError("a listed picture isn't there", file=raw / name, table=table, row=row)
    return raw / name
