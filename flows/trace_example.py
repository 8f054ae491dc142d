"""Which raw file and row an example of a training step was, or which steps see a raw row. Needs records, no server.

python -m flows.trace_example mnist --step 123 --slot 7
python -m flows.trace_example mnist --row 4711
"""

from __future__ import annotations

import sys
from typing import Any

from datasets.errors import StoreError
from tasks.command import Command
from tasks.convert import convert
from tasks.fetch import fetch, prepared
from tasks.fingerprint_memory import RememberedSources
from tasks.planning import Plan
from tasks.provenance import show, trace


def trace_example(
    dataset: str, step: int | None = None, slot: int | None = None, file: str | None = None, row: int | None = None,
    **parameters: Any,  # noqa: ANN401 - those of `train`
) -> dict[str, Any]:  # fmt: skip
    """Looks an example up in the records that a run with these parameters uses, as JSON.

    Raises:
        StoreError: They aren't in the store.
        FetchError: A raw file is missing or isn't what the dataset file pins.
        ParameterError: There is no such step, slot, file or row.
    """
    request = prepared(dataset, keep=False, **parameters)
    plan = Plan(request, sources=RememberedSources(request.store, keep=False))
    records = convert(plan, raw=fetch(plan))
    if plan.outcomes[-1].state != "cached":
        raise StoreError(
            "the records of this dataset aren't in the store, or the dataset file or raw files changed since",
            got=plan.store.root, cure=f"python -m flows.train {dataset}",
        )  # fmt: skip
    return trace(plan.request, records, step=step, slot=slot, file=file, row=row)


if __name__ == "__main__":
    command = Command("flows.trace_example", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.add("--step", help="of the training, counted from 0")
    command.add("--slot", help="place in the batch, counted from 0 (default: all)")
    command.add("--row", help="of a raw file, counted from 0: which steps see it?")
    command.add("--file", help="raw file of the row, if there are several", text=True)
    command.add("--batch-size", help="of the training, if it isn't the recipe's")
    command.add("--seed", help="of the training, if it isn't the recipe's")
    command.add("--epochs", help="of the training, if they aren't the recipe's")
    command.add("--store", help="folder of the artifacts (default: store)", text=True)
    command.add("--raw", help="folder of raw files that the training used instead of the source", text=True)
    sys.exit(command.run(trace_example, show, server=False))
