"""How fast it is, against peers and limits measured in the same run.

python -m flows.benchmark NAME [--json]     one of tasks/benchmarks/
python -m flows.benchmark all               every one, into assets/benchmarks.md with plots
"""

from __future__ import annotations

import sys

from tasks.benchmark import measure, show
from tasks.command import Command

if __name__ == "__main__":
    command = Command("flows.benchmark", __doc__)
    command.add("name", help="file under tasks/benchmarks/, or all: writes assets/benchmarks.md", text=True)
    sys.exit(command.run(measure, show, server=False))
