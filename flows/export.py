"""A promoted model as one file for any environment with JAX: raw features to logits and probabilities, or a number.

python -m flows.export fraud --out fraud.model
"""

from __future__ import annotations

import sys

from tasks.command import Command
from tasks.export import export_model, show

if __name__ == "__main__":
    command = Command("flows.export", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.parser.add_argument("--out", required=True, help="the file to write")
    command.add("--version", help="of the model, such as v2 (default: the champion)", text=True)
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    sys.exit(command.run(export_model, show, server=False))
