"""Folders of pictures: a folder a class, in one tree or in a tree a split."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from datasets.errors import DataFormatError, SchemaError
from datasets.readers.images import find_images
from datasets.readers.pixels import shown
from datasets.schema import Feature
from tasks.scaffold_doubts import near_classes
from tasks.scaffold_text import Place, Sketch, features_text, quoted

GREY = {"1", "L", "LA", "F"}
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
OTHERS = {"val": "val", "valid": "val", "validation": "val"}
SIDES = (16, 32, 64)
LARGEST = 96  # pixels a side that are kept as they are


def look_at_images(place: Place, folder: Path) -> Sketch:
    """A sketch of folders of pictures.

    Raises:
        DataFormatError: A picture is damaged, or there is none in a class folder.
        SchemaError: A class folder is empty, there is one class only, or splits have other classes.
    """
    root = folder / place.where
    trees = split_trees(root)
    found = {tree: find_images(root / tree) for tree in trees or {"": ""}}
    classes = sorted({name for each in found.values() for name in each.classes})
    for tree, each in found.items():
        for name, paths in each.classes.items():
            if not paths:
                raise SchemaError(f"class folder {name!r} has no images", file=root / tree / name, cure="remove it")
    if len(classes) < 2:
        raise SchemaError(
            "there's one class only", file=root, got=", ".join(classes), expected="a folder for each class"
        )
    paths = [path for each in found.values() for images in each.classes.values() for path in images]
    sizes, modes = sizes_and_modes(paths)
    feature, fit = shape_of(sizes, modes)
    counts = Counter({name: sum(len(each.classes.get(name, ())) for each in found.values()) for name in classes})
    unders = [f"{place.where}/{tree}".strip("/") for tree in found]
    options = f", fit={quoted(fit)}" if fit else ""
    lines = [
        f"yield from images.blocks(raw, FEATURES{f', under={quoted(under)}' if under else ''}{options})"
        for under in unders
    ]
    ignored = sum(sum(each.ignored.values()) for each in found.values())
    (h, w), n = sizes.most_common(1)[0]
    what = f"{h} x {w} pixels" if len(sizes) == 1 else f"{len(sizes)} sizes, most often {h} x {w} ({n} of {len(paths)})"
    channels = "grey" if feature.shape[2] == 1 else "RGB"
    made = {"crop": "made so by scaling and cutting the middle out", "stretch": "made so by scaling"}.get(fit or "", "")
    prefix = f"{place.where}/" if place.where else ""
    label = Feature("int32", classes=tuple(classes))
    return Sketch(
        about=f"Pictures of {_enumerated(classes)}, {feature.shape[0]} x {feature.shape[1]}",
        place=place, features={"image": feature, "label": label}, features_code="    features=FEATURES,",
        inputs="image", label="label", read="\n".join(lines),
        reads="All pictures, by class and then by file name.", rows=len(paths), counts=dict(counts),
        imports={"datasets.readers": {"images"}, "datasets.schema": {"Files"} if trees else set()},
        constants=features_text({"image": feature, "label": label}, "FEATURES"),
        rules=[
            f"The pictures are of {what}, in modes {', '.join(sorted(modes))}; an example is {feature.shape[0]} x"
            f" {feature.shape[1]}, {channels}{f', {made}' if made else ''}. Alpha is composed over white.",
            "Classes are the names of the folders, in the order of their letters.",
        ],
        left_out=[f"{ignored} files that are no pictures or in no class folder"] if ignored else [],
        splits=None if not trees else "{" + ", ".join(
            f'{quoted(name)}: Files({quoted(f"{prefix}{tree}/")})' for tree, name in trees.items()) + "}",
        model="cnn", doubts=near_classes(tuple(classes)),
    )  # fmt: skip


def split_trees(root: Path) -> dict[str, str]:
    """Split by folder, where the folders at the top are splits with class folders in them; else empty."""
    folders = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith((".", "__"))]
    known = {**SPLITS, **OTHERS}
    names = {path.name: known.get(path.name.lower()) for path in folders}
    if not folders or None in names.values() or not all(_has_folders(path) for path in folders):
        return {}
    splits = {name: split for name, split in names.items() if split is not None}
    if "test" not in splits.values():  # what others call validation is what we measure on
        splits = {name: "test" if split == "val" else split for name, split in splits.items()}
    return splits if sorted(splits.values()) in (["test", "train"], ["test", "train", "val"]) else {}


def _has_folders(path: Path) -> bool:
    return any(inside.is_dir() and not inside.name.startswith(".") for inside in path.iterdir())


def sizes_and_modes(paths: list[Path]) -> tuple[Counter[tuple[int, int]], set[str]]:
    """How many pictures have each (height, width), and the Pillow modes; from the headers alone.

    Raises:
        DataFormatError: One is no picture.
    """
    sizes, modes = Counter[tuple[int, int]](), set[str]()
    for path in paths:
        try:
            with Image.open(path) as picture:
                sizes[picture.height, picture.width] += 1
                modes.add(picture.mode)
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataFormatError("not a picture", file=shown(str(path)), got=error, cure="remove it") from error
    return sizes, modes


def shape_of(sizes: Counter[tuple[int, int]], modes: set[str]) -> tuple[Feature, str | None]:
    """Shape and dtype of an example, and how a picture of another size is made to fit."""
    channels = 1 if all(mode in GREY or mode.startswith("I") for mode in modes) else 3
    if len(sizes) == 1:
        height, width = next(iter(sizes))
        if min(height, width) >= 4 and max(height, width) <= LARGEST:
            return Feature("uint8", (height, width, channels)), None
        side = SIDES[-1]
        scale = side / max(height, width)
        small = (max(4, round(height * scale)), max(4, round(width * scale)))
        return Feature("uint8", (*small, channels)), "stretch"
    short = statistics.median_low([min(size) for size in sizes.elements()])
    side = max([side for side in SIDES if side <= short], default=SIDES[0])
    return Feature("uint8", (side, side, channels)), "crop"


def _enumerated(names: list[str]) -> str:
    if len(names) > 6:
        return f"{len(names)} classes ({', '.join(names[:3])} ...)"
    return f"{', '.join(names[:-1])} and {names[-1]}"
