"""A Prefect server, if none answers, and a deployment `train/<dataset>` for every dataset file: one process tree.

    python -m flows.serve

Ctrl-C or SIGTERM ends the deployments first, then the server if this command started it; nothing is left behind.
"""

from __future__ import annotations

import sys
from typing import cast

from prefect import serve
from prefect.deployments.runner import RunnerDeployment

from flows.train import train
from tasks.backlog import settle_abandoned_runs, skip_missed_nights
from tasks.serving import deployment_options, keep
from tasks.zombies import watch_for_zombies


def deployments() -> int:
    """Runs what is triggered until a signal; runs that a crash of the machine left behind are settled first."""
    settle_abandoned_runs()
    skip_missed_nights()
    watch_for_zombies()
    served = [cast(RunnerDeployment, train.to_deployment(**options)) for options in deployment_options()]
    serve(*served, pause_on_shutdown=False, limit=4)
    return 0


if __name__ == "__main__":
    sys.exit(deployments() if sys.argv[1:] == ["--deployments"] else keep())
