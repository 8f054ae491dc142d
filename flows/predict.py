"""What a promoted model says of raw files, as a Parquet file: reader, transforms and policy are those of the training.

python -m flows.predict fraud --raw today.parquet --out scores.parquet
"""

from __future__ import annotations

import sys
from typing import Any

from prefect import flow

from tasks.command import Command
from tasks.predict import predict_raw, show
from tasks.predictions import dated
from tasks.server import NO_RESULTS


@flow(
    name="predict", flow_run_name="{dataset}", validate_parameters=True, persist_result=False, result_storage=NO_RESULTS
)
def predict(
    dataset: str, raw: str, out: str, version: str | None = None, store: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Predicts every row of raw files with a promoted model.

    Args:
        dataset: Name of a file under `datasets/`.
        raw: A raw file or a folder of them, in the dataset's format; `{date}` stands for the run's day.
        out: The Parquet file to write; `{date}` likewise.
        version: Of the model; the champion if empty.
        store: Folder of the artifacts.
    """
    return predict_raw(dataset, dated(raw, dataset), dated(out, dataset), version, store=store)


if __name__ == "__main__":
    command = Command("flows.predict", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.parser.add_argument(
        "--raw", required=True, help="a raw file or a folder of them, in the dataset's format; labels aren't needed"
    )
    command.parser.add_argument("--out", required=True, help="the Parquet file to write")
    command.add("--version", help="of the model, such as v2 or staging (default: the champion)", text=True)
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(predict_raw, show, server=False))
