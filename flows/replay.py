"""Runs the bad batch of a capsule again: is it bad here too, which line made the first infinity or NaN, which examples.

python -m flows.replay store/capsules/mnist/step-00000123-4f0c... [--json]
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.post_mortem import examine, show

if __name__ == "__main__":
    command = Command("flows.replay", __doc__)
    command.add("capsule", help="folder of the capsule, as the error names it", text=True)
    command.add("--store", help="folder of the artifacts (default: the store that the capsule lies in)", text=True)
    sys.exit(command.run(examine, show, server=False))
