"""A folder of IDX files, as of MNIST: a file of examples and one of labels, or such a pair for train and for test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from datasets.errors import ParameterError, SchemaError
from datasets.readers import idx
from datasets.schema import Feature
from tasks.scaffold_text import Place, Sketch, features_text, quoted
from tasks.sources import stored_name

ENDINGS = ("-ubyte", "-ubyte.gz", ".idx", ".idx.gz")
ROLE = re.compile(r"image|label|idx\d?|ubyte|[-_.s]")
TRAIN, TEST = re.compile("train"), re.compile("test|t10k|valid")
MOST_CLASSES = 1000


def look_at_idx(place: Place, folder: Path) -> Sketch:
    """A sketch of the IDX files of a folder.

    Raises:
        ParameterError: Which file of labels belongs to which of examples can't be told.
        SchemaError: Examples differ in shape, or labels are no classes.
        DataFormatError: A file is damaged.
    """
    pairs = pairs_of(folder, place.where)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    counted: Counter[int] = Counter()
    for images, labels in pairs.values():
        for block in idx.blocks(folder, images=images, labels=labels):
            pixels = block.columns["image"]
            shapes[images] = (pixels.dtype.name, pixels.shape[1:])
            counted.update(block.columns["label"].tolist())
    if len(set(shapes.values())) != 1:
        raise SchemaError("examples differ in dtype or shape", file=folder / place.where, got=shapes)
    if min(counted) < 0 or max(counted) >= MOST_CLASSES or len(counted) < 2:
        raise SchemaError(
            "labels are no classes", file=folder / place.where, got=f"{min(counted)} to {max(counted)}",
            expected=f"2 to {MOST_CLASSES} classes, counted from 0",
        )  # fmt: skip
    [(dtype, shape)] = set(shapes.values())
    features = {
        "image": Feature(dtype, tuple(int(n) for n in shape)),
        "label": Feature("int32", classes=tuple(map(str, range(max(counted) + 1)))),
    }
    splits = ", ".join(f"{quoted(name)}: Files({quoted(images)})" for name, (images, _) in pairs.items())
    reads = [f"yield from idx.blocks(raw, images={quoted(a)}, labels={quoted(b)})" for a, b in pairs.values()]
    rows = sum(counted.values())
    picture = np.dtype(dtype) == np.uint8 and len(shape) == 3 and min(shape[:2]) >= 4
    return Sketch(
        about=f"{len(pairs) * 2} IDX files: {dtype} {list(shape)}, {max(counted) + 1} classes",
        place=place, features=features, features_code="    features=FEATURES,", inputs="image", label="label",
        read="\n".join(reads), reads="All examples, in the order of the files.", rows=rows,
        counts={str(name): count for name, count in counted.items()},
        imports={"datasets.readers": {"idx"}, "datasets.schema": {"Files"} if len(pairs) > 1 else set()},
        constants=features_text(features, "FEATURES"), rules=["Classes are the numbers of the labels."],
        splits=f"{{{splits}}}" if len(pairs) > 1 else None, model="cnn" if picture else "mlp", equal_rows=not picture,
    )  # fmt: skip


def pairs_of(folder: Path, where: str) -> dict[str, tuple[str, str]]:
    """Names of the files of examples and of labels, by split; one named "" if there are no splits.

    Raises:
        ParameterError: It can't be told.
    """
    found: dict[str, dict[str, str]] = {}
    below = [path for path in sorted((folder / where).rglob("*")) if path.name.lower().endswith(ENDINGS)]
    names = [stored_name(path.relative_to(folder).as_posix()) for path in below]
    for name in names:
        short = Path(name).name.lower()
        role = "labels" if "label" in short else "images"
        found.setdefault(ROLE.sub("", short), {}).setdefault(role, name)
    whole = [(pair["images"], pair["labels"]) for pair in found.values() if len(pair) == 2]
    train = [pair for pair in whole if TRAIN.search(pair[0].lower())]
    test = [pair for pair in whole if TEST.search(pair[0].lower())]
    if 2 * len(whole) == len(names):
        if len(whole) == 1:
            return {"": whole[0]}
        if len(whole) == 2 and len(train) == len(test) == 1 and train != test:
            return {"train": train[0], "test": test[0]}
    raise ParameterError(
        "which IDX files belong together?", parameter="path", got=", ".join(names),
        expected="x-images-idx3-ubyte and x-labels-idx1-ubyte, with x = train and x = test for two pairs",
        cure="rename them",
    )  # fmt: skip
