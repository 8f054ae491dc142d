"""Which split the data of a table asks for: by time where it has one, by hash where entities have several rows.

Only what is obvious, and only if it can be tested on: a fifth of the rows or near it, every class on both sides. What
is neither is dealt out at random, as any table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from datasets.errors import SchemaError
from datasets.readers.faults import Faults
from datasets.readers.times import ISO, Times
from datasets.schema import Feature
from datasets.splits import ByHash, ByTime, rows_of
from tasks.scaffold_columns import Column, Table, batches

EPOCH = re.compile(r"(^|_)(timestamp|ts|time|epoch|unix|at)$", re.IGNORECASE)
ENTITY = re.compile(
    r"(^|_)(user|customer|client|patient|subject|account|player|driver|member|session|device)(_?(id|no|key|uuid))?$"
    r"|.(_id|_uuid|_guid)$|^(id|uuid|guid)$",
    re.IGNORECASE,
)
YEAR_1980 = 315_532_800
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
    """

    column: Column
    feature: Feature
    rule: str
    why: str
    is_text: bool = False

    @property
    def helper(self) -> str:
        """The class of the split."""
        return self.rule.partition("(")[0]


def decided_by(table: Table, target: Column, classes: tuple[str, ...]) -> Decided | None:
    """The split that the data asks for; None for one at random."""
    others = [one for one in table.columns if one is not target and not one.in_folder and not one.missing]
    times = [column for column in others if _is_time(column)]
    if len(times) == 1 and (found := _by_time(table, times[0], target, classes)):
        return found
    for column in others:
        whole = column.is_number and column.whole
        if ENTITY.search(column.name.strip()) and (whole or (column.kind == "text" and not column.is_number)):
            found = _by_hash(table, column, target, classes)
            if found:
                return found
    return None


def _is_time(column: Column) -> bool:
    if column.kind.startswith(("timestamp", "date")):
        return True
    if column.is_number:
        return column.whole and column.low >= YEAR_1980 and EPOCH.search(column.name.strip()) is not None
    return column.kind == "text" and all(re.match(ISO, value.strip()) for value in column.values)


def _by_time(table: Table, column: Column, target: Column, classes: tuple[str, ...]) -> Decided | None:
    is_text = column.kind == "text" and not column.is_number
    try:
        arrays, labels = _values(table, column, target, times=(column.name,) if is_text else ())
    except SchemaError:  # not every value is a time
        return None
    times = np.concatenate([_seconds(array) for array in arrays])
    if not -(2**31) <= times.min() <= times.max() < 2**31 or len(np.unique(times)) < FEWEST:
        return None
    cut = int(np.quantile(times, 0.8, method="higher"))
    day = round(cut / DAY) * DAY
    cut = day if 0.15 <= (times >= day).mean() <= 0.3 else cut
    rule = ByTime("at", {"train": (None, cut), "test": (cut, None)})
    share = _test_share(rule, "at", times, labels, classes)
    if share is None:
        return None
    return Decided(
        column, Feature("int32"), f'ByTime({{}}, {{{{"train": (None, {cut}), "test": ({cut}, None)}}}})',
        f"The future is predicted from the past: tested on {datetime.fromtimestamp(cut, UTC):%Y-%m-%d %H:%M:%S} UTC "
        f"and after, {share:.1%} of the rows", is_text,
    )  # fmt: skip


def _by_hash(table: Table, column: Column, target: Column, classes: tuple[str, ...]) -> Decided | None:
    arrays, labels = _values(table, column, target)
    if column.is_number:
        keys = np.concatenate([array.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False) for array in arrays])
        feature = Feature("int32")
        if not -(2**31) <= keys.min() <= keys.max() < 2**31:
            return None
    else:
        width = -(-max(column.widest, 1) // 8) * 8
        texts = np.array([text.encode() for array in arrays for text in array.to_pylist()], f"S{width}")
        keys, feature = texts.view(np.uint8).reshape(len(texts), width), Feature("uint8", (width,))
    count = len(np.unique(keys, axis=0))
    if count < FEWEST or 2 * count > len(keys):
        return None
    share = _test_share(ByHash("key", {"train": 0.8, "test": 0.2}), "key", keys, labels, classes)
    if share is None:
        return None
    return Decided(
        column, feature, 'ByHash({}, {{"train": 0.8, "test": 0.2}})',
        f"All rows of one {column.name} are in one split ({count:,} of them), so that the test is on others; "
        f"{share:.1%} of the rows",
    )  # fmt: skip


def _test_share(
    rule: ByTime | ByHash, name: str, values: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]
) -> float | None:
    """Share of the rows in the test split; None if it can't be tested on."""
    found = rows_of(rule, {name: values}, "", 0, len(values), None)
    share = len(found["test"]) / len(values)
    if not TEST[0] <= share <= TEST[1]:
        return None
    if classes and any(len(np.unique(labels[found[split]])) < len(classes) for split in ("train", "test")):
        return None
    return share


def _values(table: Table, column: Column, target: Column, times: tuple[str, ...] = ()) -> tuple[list[Any], np.ndarray]:
    """All values of a column, and those of the label as text."""
    arrays, labels = [], []
    for path, name in zip(table.paths, table.files, strict=True):
        made = batches(table.kind, path, name, table.separator)
        clock, faults, row = Times(times), Faults(name), 0
        for batch in made:
            if batch.num_rows:
                read = clock.read(pa.Table.from_batches([batch]), faults, row)
                faults.raise_if_any()
                row += batch.num_rows
                arrays.append(read.column(column.name).combine_chunks())
                labels.append(np.array(list(map(str, batch.column(target.name).to_pylist()))))
    return arrays, np.concatenate(labels)


def _seconds(array: pa.Array) -> np.ndarray:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.int64())
    if not pa.types.is_integer(array.type) and not pa.types.is_floating(array.type):
        array = array.cast(pa.timestamp("s", getattr(array.type, "tz", None)), safe=False)
    return array.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
