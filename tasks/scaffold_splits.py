"""Which split the data of a table asks for: by time where it has one, by hash where entities have several rows.

Only what is obvious, and only if it can be tested on: a fifth of the rows or near it, every class on both sides. What
is neither is dealt out at random, as any table; where a column looks as if it should decide, the file says why not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from datasets.errors import SchemaError
from datasets.readers.faults import Faults
from datasets.readers.times import Times
from datasets.readers.values import WIDE, known_texts
from datasets.readers.zones import Zones
from datasets.schema import Feature
from datasets.splits import ByHash, ByTime, rows_of
from tasks.scaffold_columns import Column, Table, batches
from tasks.scaffold_times import in_seconds, times_among

PERSON = re.compile(
    r"(^|_)(user|customer|client|patient|subject|account|player|driver|member|session|device)(_?(id|no|key|uuid))?$",
    re.IGNORECASE,
)
ENTITY = re.compile(r".(_id|_uuid|_guid)$|^(id|uuid|guid)$", re.IGNORECASE)
DAY = 86_400
FEWEST = 20  # entities or times
TEST = (0.1, 0.35)  # of the rows


@dataclass(frozen=True)
class Decided:
    """A column that decides the split.

    Attributes:
        column: Of the table.
        feature: That it is read as.
        rule: Python of the split, with {} for the feature's name.
        why: One line.
        is_text: Whether it is a time that is written as text.
        count: Of entities or times.
    """

    column: Column
    feature: Feature
    rule: str
    why: str
    is_text: bool = False
    count: int = 0

    @property
    def helper(self) -> str:
        """The class of the split."""
        return self.rule.partition("(")[0]


def decided_by(table: Table, target: Column, classes: tuple[str, ...]) -> tuple[Decided | None, list[str]]:
    """The split that the data asks for, None for one at random; and why other columns don't decide it."""
    others = [one for one in table.columns if one is not target and not one.in_folder]
    times, remarks = times_among(others)
    if len(times) > 1:
        names = ", ".join(column.name for column in times)
        remarks.append(f"there are several times ({names}), and which is that of the row can't be told")
    elif times:
        found = _by_time(table, times[0], target, classes)
        if isinstance(found, Decided):
            return found, remarks
        remarks.append(f"{times[0].name} is a time, but {found}")
    return _by_entity(table, [one for one in others if one not in times], target, classes, remarks)


def splits_why(decided: Decided | None, remarks: list[str]) -> str:
    """What the splits go by and what they don't, for the dataset file; "" where there is nothing to say."""
    if decided is not None:
        return ". Besides: ".join([decided.why, *(["; ".join(remarks)] if remarks else [])])
    if not remarks:
        return ""
    return f"At random, although {'; '.join(remarks)}. ByTime or ByHash can say otherwise (datasets/splits.py)"


def _by_entity(
    table: Table, columns: list[Column], target: Column, classes: tuple[str, ...], remarks: list[str]
) -> tuple[Decided | None, list[str]]:
    """The fewest people before the fewest of other things: what belongs to one of them is mostly kept together, too."""
    found: list[Decided] = []
    for column in columns:
        name = column.name.strip()
        whole = column.is_number and column.whole
        is_key = whole or (column.kind == "text" and not column.is_number)
        if is_key and (PERSON.search(name) or ENTITY.search(name)):
            one = _by_hash(table, column, target, classes)
            if isinstance(one, Decided):
                found.append(one)
            elif one:
                remarks.append(f"{name} says whose row it is, but {one}")
    if not found:
        return None, remarks
    best = min(found, key=lambda one: (PERSON.search(one.column.name.strip()) is None, one.count))
    remarks += [f"the rows of one {one.column.name} may be in both" for one in found if one is not best]
    return best, remarks


def _by_time(table: Table, column: Column, target: Column, classes: tuple[str, ...]) -> Decided | str:
    """The split by a column of times; or why there can't be one."""
    is_text = column.kind == "text" and not column.is_number
    try:
        arrays, labels = _values(table, column, target, times=(column.name,) if is_text else ())
    except SchemaError as error:
        return f"{error.what} ({error.facts.get('got')})"
    if gaps := sum(array.null_count for array in arrays):
        return f"{gaps} of {column.rows} rows have none"
    times = np.concatenate([in_seconds(array) for array in arrays])
    if not -(2**31) <= times.min() <= times.max() < 2**31:
        return "some are beyond 1901 to 2038, in seconds since 1970 (are they milliseconds?)"
    if (count := len(np.unique(times))) < FEWEST:
        return f"there are only {count} of them"
    cut = int(np.quantile(times, 0.8, method="higher"))
    day = round(cut / DAY) * DAY
    cut = day if 0.15 <= (times >= day).mean() <= 0.3 else cut
    rule = ByTime("at", {"train": (None, cut), "test": (cut, None)})
    share = _test_share(rule, "at", times, labels, classes)
    if isinstance(share, str):
        return share
    return Decided(
        column, Feature("int32"), f'ByTime({{}}, {{{{"train": (None, {cut}), "test": ({cut}, None)}}}})',
        f"The future is predicted from the past: tested on {datetime.fromtimestamp(cut, UTC):%Y-%m-%d %H:%M:%S} UTC "
        f"and after, {share:.1%} of the rows", is_text, count,
    )  # fmt: skip


def _by_hash(table: Table, column: Column, target: Column, classes: tuple[str, ...]) -> Decided | str:
    """The split by a column of entities; or why there can't be one, "" if each has one row and nothing can leak."""
    if column.gaps:
        return f"{column.gaps} of {column.rows} rows have none"
    arrays, labels = _values(table, column, target)
    read = _keys(column, arrays)
    if isinstance(read, str):
        return read
    keys, feature = read
    count = len(np.unique(keys, axis=0))
    if count == len(keys):
        return ""
    if count < FEWEST:
        return f"there are only {count} of them"
    share = _test_share(ByHash("key", {"train": 0.8, "test": 0.2}), "key", keys, labels, classes)
    if isinstance(share, str):
        return share
    return Decided(
        column, feature, 'ByHash({}, {{"train": 0.8, "test": 0.2}})',
        f"All rows of one {column.name} are in one split ({count:,} of them), so that the test is on others; "
        f"{share:.1%} of the rows", count=count,
    )  # fmt: skip


def _keys(column: Column, arrays: list[Any]) -> tuple[np.ndarray, Feature] | str:
    """Keys as a batch can hold them, and the feature that the reader makes such of; or why there are none.

    Whole numbers within int32 are themselves, others their 8 bytes; where they are written as text, and that is beyond
    int32 or with a decimal point, the text itself is the key.
    """
    is_text = any(pa.types.is_string(array.type) or pa.types.is_large_string(array.type) for array in arrays)
    if column.is_number:
        try:
            plain = [known_texts(array) if is_text else array for array in arrays]
            numbers = np.concatenate([array.cast(pa.int64()).to_numpy(zero_copy_only=False) for array in plain])
        except pa.ArrowInvalid:
            numbers = None
        if numbers is not None and -(2**31) <= numbers.min() <= numbers.max() < 2**31:
            return numbers, Feature("int32")
        if not is_text:
            exact = [pa.types.is_integer(array.type) or pa.types.is_decimal(array.type) for array in arrays]
            if numbers is None or not all(exact):
                return "it is stored as numbers that can't be told apart at this size"
            return numbers.astype("<i8").view(np.uint8).reshape(len(numbers), *WIDE), Feature("uint8", WIDE)
    texts = [text for array in arrays for text in array.to_pylist()]
    if column.is_number and len({Decimal(text) for text in set(texts)}) < len(set(texts)):
        return "one and the same is written in several ways"
    width = -(-max(column.widest, 1) // 8) * 8
    keys = np.array([text.encode() for text in texts], f"S{width}").view(np.uint8)
    return keys.reshape(len(texts), width), Feature("uint8", (width,))


def _test_share(
    rule: ByTime | ByHash, name: str, values: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]
) -> float | str:
    """Share of the rows in the test split; or why it can't be tested on."""
    found = rows_of(rule, {name: values}, "", 0, len(values), None)
    share = len(found["test"]) / len(values)
    if not TEST[0] <= share <= TEST[1]:
        return f"{share:.0%} of the rows would be in the test split"
    for split, rows in found.items() if classes else ():
        if missing := set(np.unique(labels)) - set(labels[rows]):
            return f"the {split} split would have no {str(min(missing))!r}"
    return share


def _values(table: Table, column: Column, target: Column, times: tuple[str, ...] = ()) -> tuple[list[Any], np.ndarray]:
    """All values of a column, and those of the label as text.

    Raises:
        SchemaError: Not every value is a time, or some files' have a zone and others' haven't.
    """
    arrays, labels, zones = [], [], Zones()
    for path, name in zip(table.paths, table.files, strict=True):
        clock, faults, row = Times(times, zones), Faults(name), 0
        for batch in batches(table.kind, path, name, table.separator):
            if batch.num_rows:
                read = clock.read(pa.Table.from_batches([batch]), faults, row)
                faults.raise_if_any()
                row += batch.num_rows
                array = read.column(column.name).combine_chunks()
                zones.see_type(column.name, batch.schema.field(column.name).type, name)
                arrays.append(array)
                labels.append(np.array(list(map(str, batch.column(target.name).to_pylist()))))
    return arrays, np.concatenate(labels)
