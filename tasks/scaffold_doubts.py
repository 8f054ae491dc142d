"""What in a table looks like a slip of whoever wrote it: said in the dataset file, or refused where it must be."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from datasets.errors import SchemaError
from datasets.readers.values import MISSING, as_seen
from tasks.scaffold_columns import Column, Table

PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
OTHERWISE = re.compile(r"[+-]?[$€£]? ?(\d{1,3}([., '’]\d{3})+|\d+)([.,]\d+)? ?[%$€£]?")
MOST = 0.9  # of the values: the others are then the odd ones


def check_names(table: Table) -> None:
    """Raises SchemaError if the first line of a delimited file is a row of data: the row would be lost."""
    names = [column.name.strip() for column in table.columns]
    numbers = all(PLAIN.fullmatch(name) for name in names)
    counted = names in ([str(i) for i in range(len(names))], [str(i + 1) for i in range(len(names))])
    own = [column for column in table.columns if column.name in column.values and not column.is_number]
    if table.kind == "delimited" and ((numbers and not counted) or own):
        raise SchemaError(
            "the first line looks like data and not like the names of columns", file=table.paths[0],
            got=", ".join(names), cure="write a line with a name for each column in front of it",
        )  # fmt: skip


def check_classes(column: Column) -> None:
    """Raises SchemaError if names of classes are the same but for spaces around them or their Unicode form."""
    if same := alike(column.values, as_seen):
        raise SchemaError(
            "names of classes differ only by spaces or by their Unicode form", field=column.name,
            got=", ".join(ascii(name) for name in same), count=" and ".join(str(column.values[name]) for name in same),
            cure="write them in one way",
        )  # fmt: skip


def doubts_about(classes: tuple[str, ...], others: Iterable[Column]) -> list[str]:
    """What may well not be meant so."""
    found = [f"{column.name} is no column of numbers: {why}" for column in others if (why := odd_numbers(column))]
    return found + near_classes(classes)


def near_classes(classes: tuple[str, ...]) -> list[str]:
    """That some classes may be one: their names differ by case, or are the same number."""
    same = alike(classes, str.casefold) or alike(classes, _as_number)
    return [f"{' and '.join(map(repr, same))} are different classes"] if same else []


def odd_numbers(column: Column) -> str:
    """Why a column of texts, most of which are numbers or look so, isn't one of numbers; "" for other columns."""
    if column.kind != "text" or column.is_number:
        return ""
    values = {text.strip(): count for text, count in column.values.items() if text.strip() not in MISSING}
    odd = {text: count for text, count in values.items() if not PLAIN.fullmatch(text)}
    total, count = sum(values.values()), sum(odd.values())
    if not odd or not total:
        return ""
    example = f"{next(iter(odd))!r} isn't written as one such as 1234.5"
    if count <= (1 - MOST) * total:
        return f"{count} of {total} values, {example}"
    neither = sum(n for text, n in odd.items() if not OTHERWISE.fullmatch(text))
    return "" if neither > (1 - MOST) * total else example


def alike(names: Iterable[str], form: Callable[[str], str]) -> list[str]:
    """The first names that have one form; none if all differ."""
    forms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        forms[form(name)].append(name)
    return next((group for group in forms.values() if len(group) > 1), [])


def _as_number(name: str) -> str:
    return str(float(name)) if PLAIN.fullmatch(name.strip()) else name
