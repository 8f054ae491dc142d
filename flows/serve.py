"""A Prefect server, if none answers, and the deployments: train and predict for each dataset file, promote, clean.

    python -m flows.serve

All are one process tree. Ctrl-C or SIGTERM ends the deployments first, then the server if this command started it;
nothing is left behind.
"""

from __future__ import annotations

import sys
from typing import cast

from prefect import serve
from prefect.deployments.runner import RunnerDeployment

from datasets.errors import GristmillError
from flows.clean import clean
from flows.predict import predict
from flows.promote import promote
from flows.train import train
from tasks.backlog import settle_abandoned_runs, skip_missed_nights
from tasks.left_running import end_stages_of_ended_runs
from tasks.notify import addresses, tell_of_failures
from tasks.predictions import prediction_options
from tasks.serving import clean_options, deployment_options, keep, promote_options
from tasks.zombies import watch_for_zombies


def deployments() -> int:
    """Runs what is triggered until a signal; runs that a crash of the machine left behind are settled first."""
    tell_of_failures()  # first, so that those that are settled now are told of too
    settle_abandoned_runs()
    end_stages_of_ended_runs()
    skip_missed_nights()
    watch_for_zombies()
    serve(*served(), pause_on_shutdown=False, limit=4)
    return 0


def served() -> list[RunnerDeployment]:
    """Every deployment: `train/` and `predict/<dataset>` for each dataset file, `promote/models` and `clean/store`."""
    trainings = [train.to_deployment(**options) for options in deployment_options()]
    predictions = [predict.to_deployment(**options) for options in prediction_options()]
    changes = promote.to_deployment(**promote_options())
    others = (*predictions, changes, clean.to_deployment(**clean_options()))
    return [cast(RunnerDeployment, one) for one in (*trainings, *others)]


def main(arguments: list[str]) -> int:
    """The exit status; a wrong setting is refused before anything is started."""
    try:
        addresses()
        clean_options()
        return deployments() if arguments == ["--deployments"] else keep()
    except GristmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
