"""Runs beside each other: parameters that differ, metrics with intervals, cost; with --out also their curves.

python -m flows.compare 1f3a 9c0e mnist/champion --out runs.html
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.comparison import compare_runs, show

if __name__ == "__main__":
    command = Command("flows.compare", __doc__)
    command.parser.add_argument("runs", nargs="+", metavar="RUN", help="as in flows.report")
    command.add("--out", help="file to write: .html for table and curves, .png for the curves", text=True)
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(compare_runs, show, server=False))
