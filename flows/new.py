"""A dataset file for your own data: looks at a file or folder, writes datasets/NAME.py, prints the next command.

python -m flows.new pets ~/pets
python -m flows.new shelter ~/shelter.csv --label kind
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.scaffold import scaffold, show

if __name__ == "__main__":
    command = Command("flows.new", __doc__)
    command.add("name", help="of the new dataset", text=True)
    what = "a CSV, TSV, Parquet, JSON Lines or npz file, a zip or tar, or a folder of these, of pictures or IDX files"
    command.add("path", help=what, text=True)
    command.add("--label", help="column or array to predict, where it can't be told", text=True)
    sys.exit(command.run(scaffold, show, server=False))
