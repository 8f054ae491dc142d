"""Tables: numbers and classes side by side as one vector, texts as bytes beside it, one column as the label."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from datasets.errors import ParameterError, SchemaError
from datasets.readers.tables import check_header
from tasks.scaffold_columns import MOST_DISTINCT, Column, Table, look_at_columns
from tasks.scaffold_doubts import check_classes, check_names, doubts_about
from tasks.scaffold_splits import Decided, decided_by, splits_why
from tasks.scaffold_text import Place, Sketch, quoted
from tasks.scaffold_vector import reading, vector_of

LABELS = ("label", "class", "target", "y", "category", "species", "outcome", "is_fraud", "fraud")
MOST_CLASSES = 32  # of a column that becomes one-hot
MOST_BYTES = 256  # of a text that is kept
IDENTITY = re.compile(r"^$|^index$|(^|_)(id|uuid|guid)$|^unnamed", re.IGNORECASE)


@dataclass
class Roles:
    """What becomes of each column.

    Attributes:
        numbers: Standardised, side by side.
        filled: Numbers of which some are missing.
        lists: Lists of numbers, all of one length.
        classes: One-hot.
        texts: Kept as bytes, not seen by the model.
        left_out: Neither, and why.
    """

    numbers: list[Column] = field(default_factory=list)
    filled: list[Column] = field(default_factory=list)
    lists: list[Column] = field(default_factory=list)
    classes: list[Column] = field(default_factory=list)
    texts: list[Column] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def look_at_table(kind: str, place: Place, folder: Path, label: str | None) -> Sketch:
    """A sketch of a table.

    Raises:
        ParameterError: Which column is the label can't be told.
        SchemaError: There are no names of columns, or that of the label isn't in every file; its values are no classes;
            or nothing else is left to learn from.
        DataError: A file is damaged or empty.
    """
    table = look_at_columns(kind, folder, place.where)
    check_names(table)
    target = label_of(table, label)
    for path, names in zip(table.paths, table.headers, strict=False):
        check_header(names, {"label": (target.name,)}, str(path), delimiter=table.separator or "")
    classes = () if label is not None and is_measured(target) else classes_of(target)
    decided, remarks = (None, []) if _splits(table) else decided_by(table, target, classes)
    used = {id(target), *([id(decided.column)] if decided else [])}
    roles = roles_of([column for column in table.columns if id(column) not in used])
    if not (roles.numbers or roles.filled or roles.lists or roles.classes or roles.texts):
        raise SchemaError("no column is left to learn from", file=folder / place.where, got="; ".join(roles.left_out))
    return _sketch(table, place, target, classes, roles, decided, splits_why(decided, remarks))


def label_of(table: Table, label: str | None) -> Column:
    """The column that is to be predicted: the one asked for, the one of a usual name, or the only one of classes.

    Raises:
        ParameterError: There is none, or more than one.
    """
    by_name = {column.name: column for column in table.columns}
    if label is not None:
        if label not in by_name:
            raise ParameterError("there's no such column", parameter="label", got=label, known=", ".join(by_name))
        return by_name[label]
    usual = [column for column in table.columns if column.name.strip().lower() in LABELS]
    texts = [column for column in table.columns if column.kind in ("text", "truth") and not column.is_number]
    few = [column for column in texts if not column.many and _repeats(column)]
    candidates = usual or [column for column in few if len(column.values) > 1]
    if len(candidates) != 1:
        raise ParameterError(
            "which column is to be predicted?", parameter="label", got=", ".join(by_name),
            candidates=", ".join(column.name for column in candidates) or None, cure="--label COLUMN",
        )  # fmt: skip
    return candidates[0]


def is_measured(column: Column) -> bool:
    """Whether a column holds numbers of a continuous kind: not all whole, more values than classes could have."""
    return (
        column.is_number
        and not column.whole
        and not column.missing
        and (column.many or len(column.values) > MOST_CLASSES)
    )


def classes_of(column: Column) -> tuple[str, ...]:
    """Names of the classes: whole numbers in their order, other names in that of their letters.

    Raises:
        SchemaError: Values are missing, or they are no classes.
    """
    if column.missing or "" in column.values:
        count = column.missing or column.values[""]
        raise SchemaError(
            "the label is missing in some rows", field=column.name, count=f"{count} of {column.rows} rows",
            cure="remove these rows",
        )  # fmt: skip
    bad = (column.is_number and not column.whole) or column.kind not in ("number", "truth", "text")
    if bad or column.many or len(column.values) < 2 or not _repeats(column):
        found = f"more than {MOST_DISTINCT}" if column.many else str(len(column.values))
        raise SchemaError(
            "the label's values are no classes", field=column.name, got=f"{found} values of {column.kind}",
            expected=f"two classes or more, with several rows each; or decimals of more than {MOST_CLASSES} values",
            cure="--label COLUMN",
        )  # fmt: skip
    check_classes(column)
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", name) for name in column.values):
        return tuple(sorted(column.values, key=int))
    return tuple(sorted(column.values))


def roles_of(columns: list[Column]) -> Roles:
    """What becomes of the columns that aren't the label."""
    roles = Roles()
    for column in columns:
        why = _unfit(column)
        if why:
            roles.left_out.append(f"{column.name or 'the column without a name'} ({why})")
        elif column.kind == "list":
            roles.lists.append(column)
        elif column.is_number:
            (roles.filled if column.missing else roles.numbers).append(column)
        elif not column.many and len(column.values) <= MOST_CLASSES and _repeats(column):
            roles.classes.append(column)
        else:
            roles.texts.append(column)
    return roles


def _repeats(column: Column) -> bool:
    return 2 * len(column.values) <= max(column.rows, 4)


def _unfit(column: Column) -> str | None:
    """Why a column can't be part of an example."""
    if not column.kind:
        return "no value at all"
    if column.absent:
        return f"it isn't in {column.absent}"
    if column.in_folder:
        return "it is in the folders' names, and another may come"
    if column.kind == "list":
        return None if (column.length or -1) > 0 and not column.missing else "lists of several lengths"
    if column.kind == "timestamp":
        return "a time; ByTime would predict the future from the past"
    if column.kind not in ("number", "truth", "text"):
        return f"of type {column.kind}"
    if IDENTITY.search(column.name.strip()) and (column.whole or not column.is_number):
        if not column.many and _repeats(column) and len(column.values) > 1:
            return "it says whose row it is; ByHash would keep all rows of one in one split"
        return "it says which row it is"
    if len(column.values) == 1 and not column.missing:
        return "one value in all rows"
    if column.is_number:
        return None if column.spread > 0 else "one value in all rows"
    if column.missing:
        return f"no value in {column.missing} rows"
    if column.widest > MOST_BYTES and (column.many or len(column.values) > MOST_CLASSES):
        return f"texts of up to {column.widest} bytes"
    return None


def _sketch(
    table: Table, place: Place, target: Column, classes: tuple[str, ...], roles: Roles, decided: Decided | None,
    why: str,
) -> Sketch:  # fmt: skip
    vector = vector_of(roles, target, classes)
    key = vector.read(decided.column, decided.feature) if decided else ""
    times = (decided.column.name,) if decided and decided.is_text else ()
    inputs = "inputs" if vector.joined else next(iter(vector.texts))
    left_out = [*roles.left_out]
    left_out += [f"{name} (a text: kept as bytes, not seen by the model)" for name in vector.texts if name != inputs]
    left_out += [f"{decided.column.name} (it decides the split, not seen by the model)"] if decided else []
    splits = decided.rule.format(quoted(key)) if decided else _splits(table)
    imports = {"datasets.readers": {table.kind}}
    if splits is not None:
        imports |= {"datasets.splits": {decided.helper}} if decided else {"datasets.schema": {"Files"}}
    if vector.transforms or vector.joined:
        imports["datasets.transforms"] = vector.helpers()
    width = vector.width or vector.read_as[inputs].shape[0]
    return Sketch(
        about=f"{_what(table)}: {f'{len(classes)} classes of ' if classes else ''}{target.name} by {width} inputs",
        place=place, features=vector.read_as, features_code="    features=COLUMNS,", inputs=inputs, label="label",
        transforms=vector.transforms_code() if vector.transforms or vector.joined else "",
        read=reading(table, place.where, vector, times), reads="All rows, in the order of the files.", rows=table.rows,
        counts=dict(target.values) if classes else {}, imports=imports, constants=vector.constants(),
        rules=_rules(roles, target, classes), left_out=left_out, splits=splits, equal_rows=True,
        splits_why=why, doubts=doubts_about(classes, [*roles.classes, *roles.texts]),
    )  # fmt: skip


def _rules(roles: Roles, target: Column, classes: tuple[str, ...]) -> list[str]:
    rules = []
    if roles.numbers or roles.filled:
        listed = ", ".join(column.name for column in [*roles.numbers, *roles.filled])
        rules.append(f"Numbers ({listed}) are standardised by the train split's means and deviations.")
    if roles.filled:
        gaps = ", ".join(column.name for column in roles.filled)
        rules.append(f"Where {gaps} has no value, the train split's median is taken.")
    if roles.classes:
        rules.append(f"{', '.join(column.name for column in roles.classes)}: one-hot, in the order of the letters.")
    shares = ", ".join(f"{name} {target.values[name] / target.rows:.1%}" for name in classes[:10])
    if not classes:
        known = f"mean {target.mean:.6g}, deviation {target.spread:.6g}"
        return [*rules, f"The label is the number {target.name} ({known}), standardised for the training."]
    rules.append(f"The label is the column {target.name}: {shares}{' ...' if len(classes) > 10 else ''}.")
    return rules


def _splits(table: Table) -> str | None:
    """Train and test where the names of the files say so."""
    starts = {}
    for name in table.files:
        lower = Path(name).as_posix().lower()
        split = next((split for split in ("train", "test") if lower.startswith(split)), None)
        if split is None:
            return None
        starts[split] = name[: len(split)]
    if len(starts) != 2:
        return None
    return "{" + ", ".join(f"{quoted(split)}: Files({quoted(starts[split])})" for split in ("train", "test")) + "}"


def _what(table: Table) -> str:
    kind = {"delimited": "Delimited", "parquet": "Parquet", "jsonl": "JSON Lines"}[table.kind]
    return f"{kind} file {table.files[0]}" if len(table.files) == 1 else f"{len(table.files)} {kind} files"
