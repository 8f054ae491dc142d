"""An npz file: one array of examples and one of labels, or both for train and for test."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from datasets.errors import DataFormatError, ParameterError, SchemaError
from datasets.readers import raw as raw_files
from datasets.readers.tables import files_of
from datasets.schema import Feature
from tasks.scaffold_doubts import near_classes
from tasks.scaffold_text import Place, Sketch, features_text, quoted

LABELS = ("y", "label", "labels", "target", "targets")
INPUTS = ("x", "data", "image", "images", "inputs", "features")
MOST_CLASSES = 1000


def look_at_arrays(place: Place, folder: Path, label: str | None) -> Sketch:
    """A sketch of an npz file.

    Raises:
        ParameterError: Which array is what can't be told.
        SchemaError: The arrays can't be examples and labels.
        DataFormatError: The file is damaged, or its arrays are pickled.
    """
    where = place.where
    if (folder / where).is_dir():
        names = [name for _, name in files_of(folder, where, (".npz",))]
        if len(names) > 1:
            raise ParameterError(
                "several npz files", parameter="path", got=", ".join(names[:5]), cure="give the path of one"
            )
        where = names[0]
    arrays = load(raw_files.find(folder, where))
    pairs = pairs_of(arrays, label, where)
    parts = [(arrays[x], arrays[y]) for x, y in pairs.values()]
    for (x, y), (inputs, labels) in zip(pairs.values(), parts, strict=True):
        if len(inputs) != len(labels):
            raise SchemaError("arrays have different numbers of rows", file=where, got={x: len(inputs), y: len(labels)})
        if inputs.shape[1:] != parts[0][0].shape[1:] or inputs.dtype.kind not in "biuf" or not len(inputs):
            raise SchemaError(
                "an array can't be the examples", file=where, field=x, got=f"{inputs.dtype} {inputs.shape}"
            )
    labels = np.concatenate([labels.reshape(-1) for _, labels in parts])
    classes = classes_of(labels, where)
    used = {name for pair in pairs.values() for name in pair}
    left = [f"array {name} {array.dtype} {list(array.shape)}" for name, array in arrays.items() if name not in used]
    return _sketch(place, where, pairs, parts, classes, labels, left)


def load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Raises:
        DataFormatError: It is damaged or holds pickled objects.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataFormatError("this npz file can't be read", file=path, got=error) from error


def pairs_of(arrays: dict[str, np.ndarray], label: str | None, where: str) -> dict[str, tuple[str, str]]:
    """Names of the arrays of examples and of labels, by split; one named "" if there are no splits.

    Raises:
        ParameterError: It can't be told.
    """
    lower = {name.lower(): name for name in arrays}
    if label is None and {"x_train", "y_train", "x_test", "y_test"} <= lower.keys():
        return {split: (lower[f"x_{split}"], lower[f"y_{split}"]) for split in ("train", "test")}
    if label is not None and label not in arrays:
        raise ParameterError("there's no such array", parameter="label", got=label, file=where, known=", ".join(arrays))
    flat = [name for name, array in arrays.items() if array.ndim == 1 or array.shape[1:] == (1,)]
    labels = [label] if label else [name for name in arrays if name.lower() in LABELS]
    if not labels and len(arrays) == 2 and len(flat) == 1:
        labels = flat
    if not labels:
        labels = [name for name in flat if arrays[name].dtype.kind in "iubUS" and len(arrays[name]) == rows_in(arrays)]
    others = [name for name in arrays if name not in labels and len(labels) == 1]
    wide = [name for name in others if arrays[name].ndim > 1 and len(arrays[name]) == len(arrays[labels[0]])]
    named = [name for name in others if name.lower() in INPUTS]
    inputs = named or (others if len(others) == 1 else wide)
    if len(labels) != 1 or len(inputs) != 1:
        raise ParameterError(
            "which array holds the examples, and which the labels?", parameter="label", file=where,
            got=", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in arrays.items()),
            expected="arrays named x and y, or x_train, y_train, x_test and y_test",
            cure="rename them, or --label ARRAY",
        )  # fmt: skip
    return {"": (inputs[0], labels[0])}


def rows_in(arrays: dict[str, np.ndarray]) -> int:
    """How many rows the arrays have that can be examples; -1 if they differ."""
    lengths = {len(array) for array in arrays.values() if array.ndim > 1}
    return lengths.pop() if len(lengths) == 1 else -1


def classes_of(labels: np.ndarray, where: str) -> tuple[str, ...]:
    """Names of the classes, in the order of their values.

    Raises:
        SchemaError: The values are no classes.
    """
    values = np.unique(labels)
    whole = labels.dtype.kind in "biuUS" or (labels.dtype.kind == "f" and bool((values == np.rint(values)).all()))
    if not whole or not 2 <= len(values) <= MOST_CLASSES:
        raise SchemaError(
            "labels are class names or whole numbers", file=where, got=f"{labels.dtype}, {len(values)} values",
            expected=f"2 to {MOST_CLASSES} classes",
            cure='a label that is a number: in the written file, Feature("float32") without classes',
        )  # fmt: skip
    if labels.dtype.kind == "S":
        values = values.astype(str)
    return tuple(str(value) if labels.dtype.kind in "US" else str(int(value)) for value in values)


def _sketch(
    place: Place, where: str, pairs: dict[str, tuple[str, str]], parts: list[tuple[np.ndarray, np.ndarray]],
    classes: tuple[str, ...], labels: np.ndarray, left: list[str],
) -> Sketch:  # fmt: skip
    inputs = parts[0][0]
    shape = inputs.shape[1:]
    picture = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    raw_bytes = inputs.dtype == np.uint8
    shape = (*shape, 1) if len(shape) == 2 else shape
    read_as = Feature("uint8" if raw_bytes else "float32", tuple(int(n) for n in shape))
    scaled = not raw_bytes
    label = Feature("int32", classes=classes)
    reads = []
    constants = features_text({"inputs": read_as, "label": label}, "FEATURES")
    for x, y in pairs.values():
        names = f'{{"inputs": {quoted(x)}, "label": {quoted(y)}}}'
        call = f"arrays.blocks(raw, {quoted(where)}, FEATURES, columns={names})"
        reads.append(f"yield from {call}")
    sizes = [len(labels_of) for _, labels_of in parts]
    spans = {name: (sum(sizes[:i]), sum(sizes[: i + 1])) for i, name in enumerate(pairs)}
    splits = ", ".join(f"{quoted(name)}: Rows({start}, {stop})" for name, (start, stop) in spans.items())
    counted = Counter(labels.tolist())
    imports: dict[str, set[str]] = {"datasets.readers": {"arrays"}}
    if scaled:
        imports["datasets.transforms"] = {"Standardise"}
    if "" not in pairs:
        imports["datasets.schema"] = {"Rows"}
    kind = "Pictures" if picture else "Examples"
    rules = ["Numbers are standardised by the train split's means and deviations."] if scaled else []
    return Sketch(
        about=f"{kind} in {where}: {inputs.dtype} {list(inputs.shape[1:])}, {len(classes)} classes",
        place=place, features={"inputs": read_as, "label": label}, features_code="    features=FEATURES,",
        inputs="inputs", label="label",
        read="\n".join(reads), reads="All examples, in the order of the arrays.", rows=len(labels),
        counts={str(name): count for name, count in counted.items()}, imports=imports, constants=constants,
        rules=[*rules, f"Classes are in the order of the values of {' and '.join(y for _, y in pairs.values())}."],
        left_out=left, doubts=_doubts(inputs, classes), splits=None if "" in pairs else f"{{{splits}}}",
        model="cnn" if picture and min(shape[:2]) >= 4 else "mlp", equal_rows=not picture,
        transforms='    transforms={"inputs": Standardise()},' if scaled else "",
    )  # fmt: skip


def _doubts(inputs: np.ndarray, classes: tuple[str, ...]) -> list[str]:
    shape = inputs.shape[1:]
    first = len(shape) == 3 and shape[0] in (1, 3, 4) and shape[2] not in (1, 3, 4)
    channels = f"pictures of {list(shape)} have their channels first: only channels last are pictures to a cnn"
    return [*([channels] if first else []), *near_classes(classes)]
