"""Changes to code, data, options and machine, each with the stages that it must run; real edits in a `Checkout`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from checkouts import FOLLOWS, NAME, STAGES, Checkout

Edit = Callable[[Checkout], AbstractContextManager[Any]]
DATASET_FILE = f"datasets/{NAME}.py"


@dataclass(frozen=True)
class Row:
    """A change.

    Attributes:
        what: In words.
        own: Stages that read what changed; those after them run if the bytes that they read change.
        edit: Makes the change, while it is open.
        options: Of the command.
        command: More of how it is run; see `checkouts.Command`.
        dataset: To plan.
        needless: Stages that will run although their bytes can't change: the false misses that are known.
    """

    what: str
    own: frozenset[str]
    edit: Edit = lambda checkout: nullcontext()
    options: tuple[str, ...] = ()
    command: dict[str, Any] = field(default_factory=dict)
    dataset: str = NAME
    needless: frozenset[str] = frozenset()


def text(old: str, new: str, file: str = DATASET_FILE) -> Edit:
    return lambda checkout: checkout.edited(file, old, new)


def more(place: str, line: str = "_more = 1") -> Edit:
    return lambda checkout: checkout.inserted(place, line)


def reformatted(*files: str) -> Edit:
    """Every comment gone, every line broken otherwise."""

    def edit(checkout: Checkout) -> ExitStack:
        stack = ExitStack()
        for file in files:
            before = (checkout.root / file).read_text()
            stack.enter_context(checkout.edited(file, before, ast.unparse(ast.parse(before))))
        return stack

    return edit


@contextmanager
def other_raw_bytes(checkout: Checkout) -> Iterator[None]:
    """One byte of a picture, at the same path, of the same size and time."""
    path = checkout.raw
    before, at = path.read_bytes(), path.stat()
    with np.load(path) as file:
        arrays = dict(file)
    arrays["image"][7, 0, 0, 0] ^= 1
    np.savez(path, **arrays)
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (at.st_size, at.st_mtime_ns)
    yield
    path.write_bytes(before)


@contextmanager
def touched_raw(checkout: Checkout) -> Iterator[None]:
    os.utime(checkout.raw)
    yield


@contextmanager
def moved_store(checkout: Checkout) -> Iterator[None]:
    before = checkout.store
    checkout.store = before.rename(checkout.root / "elsewhere")
    yield
    checkout.store = checkout.store.rename(before)


@contextmanager
def moved_raw(checkout: Checkout) -> Iterator[None]:
    before = checkout.raw.parent
    before.rename(checkout.root / "pictures")
    yield
    (checkout.root / "pictures").rename(before)


def file(name: str, content: str) -> Edit:
    return lambda checkout: checkout.edited(name, "", content)


def stages(*names: str) -> frozenset[str]:
    return frozenset(names)


ALL, NONE = frozenset(STAGES), frozenset[str]()
READER, FIT, NET, SCORE = stages("convert"), stages("fit"), stages("fit", "evaluate"), stages("evaluate")
LOCAL = [("changed = image", "altered = image"), ("(changed *", "(altered *")]


def renamed_local(checkout: Checkout) -> ExitStack:
    stack = ExitStack()
    for old, new in LOCAL:
        stack.enter_context(checkout.edited(DATASET_FILE, old, new))
    return stack


TABLE = [
    # ---------------------------------------------------------------------- what decides no byte: nothing runs
    Row("nothing", NONE),
    Row("a comment in the dataset file", NONE, text("BRIGHTER = 1\n", "BRIGHTER = 1  # for now\n")),
    Row("a comment in the training loop", NONE, more("tasks.training:train", "# a comment")),
    Row("comments and formatting everywhere", NONE, reformatted(DATASET_FILE, "tasks/training.py", "tasks/promote.py")),
    Row("a docstring of the reader", NONE, text("All pictures, in the order", "Pictures, in the order")),
    Row("a docstring of a module", NONE, text('"""Noisy pictures whose', '"""Pictures whose')),
    Row("another store path", NONE, moved_store, ("--store", "elsewhere")),
    Row("another working directory", NONE, command={"cwd": Path("/")}),
    Row("PYTHONHASHSEED", NONE, command={"hash_seed": "77"}),
    Row("order of keys: features", NONE, text(
        '    "image": Feature("uint8", (9, 8, 1), low=0, high=255),\n    "label": Feature("int32", classes=("circle", '
        '"cross", "ring")),\n',
        '    "label": Feature("int32", classes=("circle", "cross", "ring")),\n    "image": Feature("uint8", (9, 8, 1), '
        "low=0, high=255),\n",
    )),
    Row("order of keys: splits", NONE, text(
        '{"train": Rows(0, 150), "test": Rows(150, 200)}', '{"test": Rows(150, 200), "train": Rows(0, 150)}')),
    Row("order of the arguments of Dataset", NONE, text(
        '    inputs="image",\n    label="label",\n', '    label="label",\n    inputs="image",\n')),
    Row("a new dataset file", NONE, file("datasets/other.py", "from datasets.shapes import DATASET\n")),
    Row("a new file among the tasks", NONE, file("tasks/other.py", "VALUE = 1\n")),
    Row("a new flow parameter at its default", NONE, text(
        "    timeout: Number | None = None,\n",
        "    timeout: Number | None = None,\n    extra: Number | None = None,\n", "flows/train.py")),
    Row("a text about the data", NONE, text('about="Noisy pictures"', 'about="Pictures"')),
    Row("another dataset's file", NONE, more("datasets.mnist:", "DATASET = None")),
    Row("another reader", NONE, more("datasets.readers.jsonl:blocks")),
    Row("another model's code", NONE, more("tasks.models.cnn:build")),
    Row("a function that nobody calls", NONE, more(f"datasets.{NAME}:", "def unused():\n    return 1")),
    Row("an import that nobody uses", NONE, text("from pathlib import Path\n", "from pathlib import Path, PurePath\n")),
    Row("functions in another order", NONE, more("datasets.far:", "def another():\n    return 2")),
    Row("progress bars, the store, the cache itself", NONE, more("tasks.progress:Bar")),
    Row("the time of a raw file", NONE, touched_raw),
    Row("raw files in another place", NONE, moved_raw, ("--raw", "pictures")),
    Row("steps between checkpoints, how many stay", NONE, options=("--checkpoint-every", "3", "--keep-best", "0")),
    Row("options that say what the file says", NONE, options=("--epochs", "1", "--seed", "3", "--batch-size", "16")),
    Row("a timeout", NONE, options=("--timeout", "600")),
    Row("the factory of two other datasets", NONE, more("datasets.pair:made")),
    Row("version of Prefect, rich", NONE, command={"versions": {"prefect": "3.9.9", "rich": "15.9"}}),
    # ----------------------------------------------------------------------------- known to run without need
    Row("a local variable's name", NONE, renamed_local, needless=READER),
    Row("a type annotation", NONE, text("brighter(image, by=0):", "brighter(image, by: int = 0):"), needless=READER),
    Row("a new field of Recipe at its default", NONE, text(
        "    on_nonfinite: str", "    extra: int = 0\n    on_nonfinite: str", "datasets/recipe.py"), needless=FIT),
    # --------------------------------------------------------------------------------------- what must be seen
    Row("a helper three imports away", READER, text("image + OFFSET", "image + OFFSET + 1", "datasets/far.py")),
    Row("a constant three imports away", READER, text("OFFSET = 0", "OFFSET = 1", "datasets/far.py")),
    Row("a constant of the dataset file", READER, text("BRIGHTER = 1", "BRIGHTER = 2")),
    Row("a default of an argument", READER, text("by=0", "by=1")),
    Row("a name imported from elsewhere", READER, text(
        "from datasets.near import nearer", "from datasets.far import far as nearer")),
    Row("a module that changes another on import", READER, text(
        "from datasets.far import far\n",
        "from datasets import far as _f\nfrom datasets.far import far\n\n_f.OFFSET = 5\n", "datasets/middle.py")),
    Row("the reader of the format", READER, more("datasets.readers.arrays:blocks")),
    Row("how records are dealt out", READER, more("tasks.dealing:deal")),
    Row("a split's bound", READER, text("Rows(0, 150)", "Rows(0, 149)")),
    Row("a byte of a raw file: same path, size and time", stages("fetch"), other_raw_bytes),
    Row("a dataset's bounds", stages("validate", "feed", "fit"), text("high=255", "high=254")),
    Row("what is an error in the data", stages("validate"), text('leaks="warn"', 'leaks="error"')),
    Row("validation's code", stages("validate"), more("tasks.duplicates:Contents")),
    Row("names of classes", stages("validate", "feed", "fit", "evaluate", "promote"), text('"cross"', '"plus"')),
    Row("how the feed is tried", stages("feed"), more("tasks.autotune:tune")),
    Row("the order of examples", stages("feed", "fit"), more("tasks.permutation:permute")),
    Row("batch size", stages("feed", "fit"), options=("--batch-size", "8")),
    Row("an augmentation", stages("feed", "fit"), text("seed=3)", "seed=3, augment=(Shift(1),))")),
    Row("learning rate, as an option", FIT, options=("--learning-rate", "0.02")),
    Row("learning rate, in the dataset file", FIT, text("learning_rate=0.01", "learning_rate=0.02")),
    Row("learning rate, the next float", FIT, options=("--learning-rate", repr(float(np.nextafter(0.01, 1))))),
    Row("seed", FIT, options=("--seed", "4")),
    Row("epochs", FIT, options=("--epochs", "2")),
    Row("a warm start", FIT, options=("--warm-start", "champion")),
    Row("debug checks", FIT, options=("--debug-checks",)),
    Row("the optimizer's code", FIT, more("tasks.optimizers:build_optimizer")),
    Row("the checkpoint's code", FIT, more("tasks.checkpoint:Checkpoints")),
    Row("the model's code", NET, more("tasks.models.mlp:build")),
    Row("a constant of the model", NET, text("HIDDEN = 128", "HIDDEN = 64", "tasks/models/mlp.py")),
    Row("another model", NET, options=("--model", "cnn")),
    Row("evaluation's code", SCORE, more("tasks.evaluate:evaluate_weights")),
    Row("a plot of the evaluation", SCORE, more("tasks.plots:confusion_matrix")),
    Row("the rule of promotion", stages("promote"), more("tasks.promote:promote_candidate")),
    Row("version of JAX", NET, command={"versions": {"jax": "0.10.9"}}),
    Row("version of optax", FIT, command={"versions": {"optax": "0.2.99"}}),
    Row("version of pyarrow", READER, command={"versions": {"pyarrow": "26.9"}}),
    Row("version of Grain", stages("feed"), command={"versions": {"grain": "0.3"}}),
    Row("the product's own format of keys", ALL, text("FORMAT = 1\n", "FORMAT = 2\n", "tasks/stage.py")),
    Row("a second dataset of one factory", stages("fetch"), dataset="one"),
    Row("a copy of the dataset under another name", stages("fetch"), file("datasets/copied.py", """
from datasets.shapes import DATASET as SAME
DATASET = SAME
"""), dataset="copied"),
]  # fmt: skip


def closure(own: frozenset[str]) -> set[str]:
    """Stages and all that read what they make."""
    return set(own).union(*(FOLLOWS[stage] for stage in own))


def planned(checkout: Checkout, row: Row) -> tuple[set[str], set[str]]:
    """Stages that will run, and those that will if what they read changes."""
    command = dict(row.command)
    with row.edit(checkout):
        if "hash_seed" in command:  # is read when an interpreter starts
            rows = plan_of_its_own(checkout, command["hash_seed"])
        else:
            rows = checkout.plan(*row.options, dataset=row.dataset, **command)
    will = {name for name, row in rows.items() if row["will"] != "cached"}
    certain = {name for name in will if rows[name]["certain"]}
    return certain, will - certain


def plan_of_its_own(checkout: Checkout, hash_seed: str) -> dict[str, Any]:
    environment = {**os.environ, "GRISTMILL_STORE": str(checkout.store), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "flows.plan", NAME, "--json"]
    done = subprocess.run(command, cwd=checkout.root, env=environment, capture_output=True, text=True, check=True)
    return {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])["stages"]}


def listed(names: set[str] | frozenset[str]) -> str:
    return " ".join(stage for stage in STAGES if stage in names) or "-"
