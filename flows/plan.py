"""What `python -m flows.train` with the same options would do, and why. Touches nothing, needs no server.

python -m flows.plan mnist --learning-rate 3e-3
"""

from __future__ import annotations

import sys
from typing import Any

from flows.train import options, stages
from tasks.command import Command
from tasks.fetch import prepared
from tasks.fingerprint_memory import RememberedSources
from tasks.planning import Plan, show


def plan(dataset: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - those of `train`
    """The plan of a run as JSON: a row a stage, with what it will do and which components differ."""
    request = prepared(dataset, keep=False, **parameters)
    planned = Plan(request, sources=RememberedSources(request.store, keep=False))
    stages(planned)
    return planned.to_json()


if __name__ == "__main__":
    sys.exit(options(Command("flows.plan", __doc__)).run(plan, show, server=False))
