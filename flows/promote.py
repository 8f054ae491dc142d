"""The versions of a dataset's models; with --version or --rollback, another champion; with --alias, another name.

python -m flows.promote mnist --rollback
python -m flows.promote mnist --alias staging --version v3
python -m flows.promote mnist --force newest --by "Ada Lovelace"
"""

from __future__ import annotations

import sys
from typing import Any

from prefect import flow

from tasks.command import Command
from tasks.handover import hand_over, show
from tasks.server import NO_RESULTS


@flow(
    name="promote", flow_run_name="{dataset}", validate_parameters=True, persist_result=False, result_storage=NO_RESULTS
)
def promote(
    dataset: str,
    version: str | None = None,
    rollback: bool = False,
    alias: str | None = None,
    candidate: str | None = None,
    by: str | None = None,
    store: str | None = None,
) -> dict[str, Any]:
    """Makes a version the champion or gives it another name; without either, only the versions are given.

    Args:
        dataset: Name of a file under `datasets/`.
        version: Such as "v2", or a name that a version has.
        rollback: Go back to the champion before this one.
        alias: The name to give to the version instead of making it the champion.
        candidate: One that was refused, to be made the champion all the same: the first digits of its digest, or
            "newest".
        by: Who wants it; needed for a candidate.
        store: Folder of the artifacts.
    """
    return hand_over(dataset, version, rollback=rollback, alias=alias, candidate=candidate, by=by, store=store)


if __name__ == "__main__":
    command = Command("flows.promote", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.add("--version", help="the version to make the champion, such as v2, or a name that it has", text=True)
    command.add_flag("--rollback", help="go back to the champion before this one")
    command.add("--alias", help="a name for --version, instead of making it the champion", text=True)
    command.parser.add_argument(
        "--force", dest="candidate", metavar="CANDIDATE",
        help="make a refused candidate the champion: the first digits of its digest, or 'newest'; with --by",
    )  # fmt: skip
    command.add("--by", help="who does this (default: the user's name; needed for --force)", text=True)
    command.parser.add_argument(
        "--list", dest="only_list", action="store_const", const=True, help="change nothing (the default)"
    )
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(hand_over, show, server=False))
