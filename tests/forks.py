"""Commands in processes of their own, forked from one that has the libraries loaded but nothing of the project.

So a command reads the code as it is now, and still starts in a fraction of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TO_PLAN = ("prefect.flow_engine", "prefect.task_engine", "pyarrow.dataset", "rich.table", "PIL.Image")
TO_TRAIN = (
    "jax", "flax.nnx", "optax", "orbax.checkpoint", "grain", "array_record.python.array_record_module", "chex",
    "safetensors", "sklearn.metrics", "scipy.stats", "matplotlib.pyplot",
)  # fmt: skip
"""Libraries that a plan and a training load."""


@dataclass
class Answer:
    """What a command did.

    Attributes:
        status: Exit status; negative for the signal that ended it.
        out: Its standard output.
        err: Its standard error.
    """

    status: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The last line of its output.

        Raises:
            AssertionError: It failed; with what it said.
        """
        assert self.status == 0, f"exit status {self.status}\n{self.out[-2000:]}\n{self.err[-6000:]}"
        return json.loads(self.out.strip().splitlines()[-1])


@dataclass
class Command:
    """A command to run in a checkout.

    Attributes:
        arguments: After `python -m`: the module and its options.
        cwd: Its working directory; the checkout's root if None.
        versions: Libraries that pretend to be of another version.
        environment: More variables.
        point: See `doomed.die_at`.
    """

    arguments: tuple[str, ...]
    cwd: Path | None = None
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    point: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "arguments": self.arguments, "cwd": self.cwd and str(self.cwd), "versions": self.versions,
            "environment": self.environment, "point": self.point,
        }  # fmt: skip


class Forks:
    """Forks a process for each command; `zygote.py` is what they are forked from.

    Args:
        root: The checkout whose code they run.
        libraries: To load once for all.
        environment: More variables.
    """

    def __init__(self, root: Path, libraries: tuple[str, ...] = (), **environment: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("zygote.py")), str(root), ",".join(libraries)]
        self._process = subprocess.Popen(
            command,
            cwd=root,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def run(self, *arguments: str, **options: Any) -> Answer:
        """Runs `python -m ARGUMENTS` to its end; `options` are those of `Command`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(Command(arguments, **options).to_json()), file=self._process.stdin, flush=True)
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """Ends the process that they are forked from."""
        self._process.communicate()
