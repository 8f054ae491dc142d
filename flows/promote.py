"""The versions of a dataset's models; with --version or --rollback, another champion.

python -m flows.promote mnist --rollback
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.handover import hand_over, show

if __name__ == "__main__":
    command = Command("flows.promote", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.add("--version", help="the version to make the champion, such as v2", text=True)
    command.add_flag("--rollback", help="go back to the champion before this one")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(hand_over, show, server=False))
