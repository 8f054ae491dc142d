"""Removes from the store what no champion, named version, recent run or running process needs; says what, and bytes.

python -m flows.clean --dry-run
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from tasks import housekeeping
from tasks.command import Command
from tasks.publish import publish_cleaning
from tasks.server import NO_RESULTS

Limit = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@flow(name="clean", flow_run_name="clean", validate_parameters=True, persist_result=False, result_storage=NO_RESULTS)
def clean(
    days: Limit = 30.0,
    keep: Annotated[int, Field(strict=True, ge=1)] = 3,
    most_gb: Limit | None = None,
    dry_run: bool = False,
    store: str | None = None,
) -> dict[str, Any]:
    """Removes what nothing needs from the store: what `python -m flows.clean` does, as a deployment.

    Args:
        days: Age since the last use below which nothing goes, unless there is more than `most_gb`.
        keep: Newest artifacts of a kind that stay whatever their age.
        most_gb: If more would remain, younger ones go too, least recently used first.
        dry_run: Only say what would go.
        store: Folder of the artifacts.
    """
    report = housekeeping.clean(days=days, keep=keep, most_gb=most_gb, dry_run=dry_run, store=store)
    publish_cleaning(report)
    return {name: report[name] for name in ("store", "dry_run", "bytes")}


if __name__ == "__main__":
    command = Command("flows.clean", __doc__)
    command.add_flag("--dry-run", help="only say what would go")
    command.add("--days", help="age since the last use below which nothing goes (default: 30)")
    command.add("--keep", help="newest artifacts of a kind that stay whatever their age (default: 3)")
    command.add("--most-gb", help="if more would remain, younger ones go too, least recently used first")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(housekeeping.clean, housekeeping.show, server=False))
