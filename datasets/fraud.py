"""Fraud in mobile money: 500,000 generated transfers of a year, about 1 % of them fraud, tested on the last two months.

No real transactions: `make_fraud.py` draws them, in about a second, when `python -m flows.train fraud` runs first or
its code changes. Data of one's own with the same columns, a Parquet file a month, takes their place by `--raw FOLDER`.

The model sees twelve float32 numbers of a transfer: amount and its share of the balance, time of day as sine and
cosine, seconds since the user's last transfer, transfers in the last hour and day, amount over the user's usual one,
days that the receiver and the account are known, new device, far from home. Counts and amounts go in as log(1 + x), and
all are scaled by the fixed numbers below. User and month are kept beside them: who it was, and what decides the split.

Record 0 (month-01.parquet, row 0): inputs float32 [-0.794, -0.435, 1.277, -0.641, -0.453, -0.5, 0.442, -0.901, -0.261,
0.685, -0.15, -0.227]; user 12002; month 1; label 0 (honest).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datasets.make_fraud import COLUMNS, write
from datasets.readers import parquet
from datasets.schema import Block, Dataset, Feature, Recipe, Source
from datasets.splits import ByTime

LOGARITHMIC = [COLUMNS.index(name) for name in COLUMNS if not name.startswith(("hour_", "new_", "far_", "balance_"))]
CENTRE = np.array([3.1, 0.23, 0, 0, 8.5, 0.2, 1.3, 0.85, 4.0, 6.8, 0.03, 0.05], np.float32)
SCALE = np.array([1.0, 0.17, 0.7, 0.7, 2.0, 0.4, 0.7, 0.5, 1.9, 1.0, 0.2, 0.22], np.float32)
READ = {
    "inputs": Feature("float32", (len(COLUMNS),)),
    "user": Feature("int32", low=0),
    "month": Feature("int32", low=1, high=12),
    "label": Feature("int32", classes=("honest", "fraud")),
}


def read(raw: Path) -> Iterator[Block]:
    """All transfers, month by month; the twelve numbers scaled."""
    for block in parquet.blocks(raw, "", READ, columns={"inputs": COLUMNS, "label": "fraud"}):
        values = block.columns["inputs"]
        values[:, LOGARITHMIC] = np.log1p(values[:, LOGARITHMIC])
        yield Block({**block.columns, "inputs": (values - CENTRE) / SCALE}, block.file, block.row)


DATASET = Dataset(
    about="Fraud in mobile money, generated: 500,000 transfers of a year, 1 % fraud, tested on the last two months",
    source=Source(generate=write),
    read=read,
    features=READ,
    inputs="inputs",
    label="label",
    splits=ByTime("month", {"train": (None, 11), "test": (11, None)}),
    recipe=Recipe(model="mlp", epochs=4, batch_size=512, learning_rate=2e-3, class_weights=(1.0, 10.0)),
)
