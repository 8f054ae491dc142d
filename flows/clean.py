"""Removes from the store what no champion, recent run or running process needs, and says what and how many bytes.

python -m flows.clean --dry-run
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.housekeeping import clean, show

if __name__ == "__main__":
    command = Command("flows.clean", __doc__)
    command.add_flag("--dry-run", help="only say what would go")
    command.add("--days", help="age since the last use below which nothing goes (default: 30)")
    command.add("--keep", help="newest artifacts of a kind that stay whatever their age (default: 3)")
    command.add("--most-gb", help="if more would remain, younger ones go too, least recently used first")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(clean, show, server=False))
