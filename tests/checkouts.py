"""A copy of the project's code that a test may edit, with a small dataset in it, and commands that run in the copy.

A command runs in a process of its own, which starts in a fraction of a second; see `forks.py`.
"""

from __future__ import annotations

import ast
import compileall
import py_compile
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from forks import Answer, Forks
from toy import ROOT, pictures

NAME = "shapes"
STAGES = ("fetch", "convert", "validate", "feed", "fit", "evaluate", "promote")
FOLLOWS = {
    "fetch": STAGES[1:], "convert": STAGES[2:], "validate": (), "feed": (), "fit": ("evaluate", "promote"),
    "evaluate": ("promote",), "promote": (),
}  # fmt: skip
"""Stages whose inputs change when the result of a stage does."""
ROWS = 200

FILES = {
    "datasets/shapes.py": '''"""Noisy pictures whose brightest third names the class."""

from collections.abc import Iterator
from pathlib import Path

from datasets.augment import Shift
from datasets.near import nearer
from datasets.readers import arrays
from datasets.schema import Block, Dataset, Feature, RawFile, Recipe, Rows, Source, Validation

BRIGHTER = 1
LAYOUT = {"image": Feature("uint8", (9, 8, 1)), "label": Feature("int32")}
FEATURES = {
    "image": Feature("uint8", (9, 8, 1), low=0, high=255),
    "label": Feature("int32", classes=("circle", "cross", "ring")),
}


def read(raw: Path) -> Iterator[Block]:
    """All pictures, in the order of the file."""
    for block in arrays.blocks(raw, "shapes.npz", LAYOUT):
        image = nearer(block.columns["image"])
        image = brighter(image)
        yield Block({**block.columns, "image": image}, block.file, block.row)


def brighter(image, by=0):
    changed = image + by
    return (changed * BRIGHTER).astype("uint8")


DATASET = Dataset(
    about="Noisy pictures",
    source=Source(files=(RawFile("shapes.npz"),), folder="raw/shapes"),
    read=read,
    features=FEATURES,
    inputs="image",
    label="label",
    splits={"train": Rows(0, 150), "test": Rows(150, 200)},
    validation=Validation(leaks="warn"),
    recipe=Recipe(model="mlp", epochs=1, batch_size=16, learning_rate=0.01, seed=3),
)
''',
    "datasets/near.py": "from datasets.middle import middling\n\n\ndef nearer(image):\n    return middling(image)\n",
    "datasets/middle.py": "from datasets.far import far\n\n\ndef middling(image):\n    return far(image)\n",
    "datasets/far.py": "OFFSET = 0\n\n\ndef far(image):\n    return image + OFFSET\n",
    "datasets/pair.py": '''"""Two datasets of one factory."""

from dataclasses import replace

from datasets.readers import arrays
from datasets.schema import Block
from datasets.shapes import DATASET as SHAPES
from datasets.shapes import LAYOUT


def made(darker):
    def read(raw):
        for block in arrays.blocks(raw, "shapes.npz", LAYOUT):
            yield Block({**block.columns, "image": block.columns["image"] // darker}, block.file, block.row)

    return replace(SHAPES, about="Darker pictures", read=read)
''',
    "datasets/one.py": "from datasets.pair import made\n\nDATASET = made(1)\n",
    "datasets/two.py": "from datasets.pair import made\n\nDATASET = made(2)\n",
}


def patient(checkout: Checkout) -> AbstractContextManager[None]:
    """While open, a service that starts lets runs be silent for long: a shared machine may halt for more than 90 s."""
    return checkout.edited("tasks/zombies.py", "SECONDS_OF_SILENCE = 90", "SECONDS_OF_SILENCE = 900")


class Checkout:
    """A copy of the code with the dataset `shapes` and its raw files.

    Args:
        root: Where to; made.
        libraries: To load once for all commands.
    """

    def __init__(self, root: Path, libraries: tuple[str, ...] = ()) -> None:
        self.root, self.store, self.environment = root, root / "store", dict[str, str]()
        for folder in ("flows", "tasks", "datasets"):
            shutil.copytree(
                ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "raw", "bundled")
            )
        (root / "datasets" / "bundled").mkdir()
        shutil.copy(ROOT / "prefect.toml", root)
        for name, text in FILES.items():
            (root / name).write_text(text)
        self.write_raw()
        # A pyc of the usual kind is trusted by the second and the size of its source: too coarse for quick edits
        compileall.compile_dir(root, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        self._forks = Forks(root, libraries, GRISTMILL_STORE=str(self.store))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forks.close()

    @property
    def raw(self) -> Path:
        """The raw file."""
        return self.root / "datasets" / "raw" / "shapes" / "shapes.npz"

    def write_raw(self, seed: int = 0, turn: int = 0) -> None:
        """Other pictures for another seed, other names for the same classes for another turn; a file of one size."""
        self.raw.parent.mkdir(parents=True, exist_ok=True)
        columns = pictures(ROWS, seed)
        np.savez(self.raw, image=columns["image"], label=(columns["label"] + turn) % 3)

    def run(self, *arguments: str, **options: Any) -> Answer:
        """Runs `python -m ARGUMENTS` in the checkout to its end."""
        options["environment"] = self.environment | options.get("environment", {})
        return self._forks.run(*arguments, **options)

    def plan(self, *arguments: str, dataset: str = NAME, **options: Any) -> dict[str, dict[str, Any]]:
        """Rows of the plan by stage."""
        plan = self.run("flows.plan", dataset, "--json", *arguments, **options).json()
        return {row["name"]: row for row in plan["stages"]}

    def train(self, *arguments: str, **options: Any) -> dict[str, Any]:
        """Summary of a run."""
        return self.run("flows.train", NAME, "--json", *arguments, **options).json()

    @contextmanager
    def edited(self, file: str, old: str, new: str) -> Iterator[None]:
        """While open, one piece of a file's text is another; a file that isn't there is made."""
        path = self.root / file
        before = path.read_text() if path.exists() else None
        assert (before or "").count(old) == 1 or before is None, f"{old!r} isn't once in {file}: name another"
        path.write_text(new if before is None else before.replace(old, new))
        try:
            yield
        finally:
            path.unlink() if before is None else path.write_text(before)

    def inserted(self, place: str, line: str) -> Any:
        """While open, a function or class, "module:name", has one more statement; or the module has, for "module:"."""
        module, _, name = place.partition(":")
        file = f"{module.replace('.', '/')}.py"
        text = (self.root / file).read_text()
        if not name:
            return self.edited(file, text, f"{text}\n{line}\n")
        found = [node for node in ast.parse(text).body if getattr(node, "name", None) == name]
        assert found, f"{place} isn't there any more: name another"
        last = found[0].body[-1]  # pyright: ignore[reportAttributeAccessIssue]
        first = min([last.lineno, *(d.lineno for d in getattr(last, "decorator_list", []))]) - 1
        lines = text.splitlines(keepends=True)
        more = [*lines[:first], " " * last.col_offset + line + "\n", *lines[first:]]
        return self.edited(file, text, "".join(more))
