"""The page of a run, as one HTML file: data, curves, speed, traces, metrics, mistakes, decision, lineage.

python -m flows.report mnist
python -m flows.report mnist/champion --out champion.html
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.run_page import report_run, show

if __name__ == "__main__":
    command = Command("flows.report", __doc__)
    command.add("run", text=True, help="a dataset (its last run), the id of a run, the key of weights, or mnist/v3")
    command.add("--out", help="the HTML file (default: below reports/ in the store)", text=True)
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(report_run, show, server=False))
