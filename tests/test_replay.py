"""A capsule that the flow wrote is enough: another process builds the step, fails in the same way, and says why."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from checkouts import Checkout
from forks import TO_PLAN, TO_TRAIN

DATASET = '''"""Rows of three numbers; one of them is a 7."""
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datasets.schema import Block, Dataset, Feature, RawFile, Recipe, Rows, Source


def read(raw: Path) -> Iterator[Block]:
    with np.load(raw / "table.npz") as table:
        yield Block({{"x": table["x"], "label": table["label"]}}, "table.npz", 0)


DATASET = Dataset(
    about="Rows of three numbers", source=Source((RawFile("table.npz", "{sha256}", {bytes}),)), read=read,
    features={{"x": Feature("float32", (3,)), "label": Feature("int32", classes=("a", "b", "c"))}}, inputs="x",
    label="label", splits={{"train": Rows(0, 150), "test": Rows(150, 200)}},
    recipe=Recipe(model="fragile", epochs=1, batch_size=16, label_smoothing=0.1, class_weights=(1.0, 2.0, 1.0)),
)
'''
MODEL = '''"""Divides by the distance to 7."""
from flax import nnx


class Fragile(nnx.Module):
    def __init__(self, width, classes, rngs):
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        nearness = 1.0 / (x[:, :1] - 7.0)
        return self.head(x) + 0.0 * nearness


def build(features_in, classes, *, dropout, rngs):
    return Fragile(features_in.shape[0], classes, rngs)
'''
BAD = 77
"""Row of the raw file, and record of the train split, in which the first number is 7."""


@pytest.fixture(scope="module")
def checkout(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A copy of this project with a dataset and a model more."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3)).astype(np.float32)
    x[BAD, 0] = 7
    with Checkout(tmp_path_factory.mktemp("copy") / "checkout", (*TO_PLAN, *TO_TRAIN)) as made:
        np.savez(made.raw.with_name("table.npz"), x=x, label=(np.arange(200) % 3).astype(np.int32))
        raw = made.raw.with_name("table.npz").read_bytes()
        text = DATASET.format(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))
        (made.root / "datasets" / "sevens.py").write_text(text)
        (made.root / "tasks" / "models" / "fragile.py").write_text(MODEL)
        yield made


@pytest.fixture(scope="module")
def capsule(checkout: Checkout) -> str:
    """Of a training that failed."""
    done = checkout.run("flows.train", "sevens", f"--raw={checkout.raw.parent}")
    assert done.status == 1, done.err[-3000:]
    found = re.search(r"python -m flows\.replay (\S+)", done.err)
    assert found, done.err[-3000:]
    return found[1]


def test_another_process_finds_line_and_example(checkout: Checkout, capsule: str) -> None:
    report = checkout.run("flows.replay", capsule, "--json").json()
    assert report["reproduced"] is True
    assert (report["kind"], report["loss"], report["dataset"]) == ("loss", "nan", "sevens")
    line = next(i for i, text in enumerate(MODEL.splitlines(), 1) if "nearness = " in text)
    model = checkout.root / "tasks" / "models" / "fragile.py"
    assert report["line"] == f"{model}:{line} in __call__: nearness = 1.0 / (x[:, :1] - 7.0)"
    assert report["nan_line"].startswith(f"{model}:{line + 1} in __call__")
    assert report["examples"] == [{"record": BAD, "file": "table.npz", "row": BAD}]
    assert report["leaves"]
    assert (report["versions"], report["code"]) == ([], [])


def test_what_a_person_reads(checkout: Checkout, capsule: str) -> None:
    done = checkout.run("flows.replay", capsule)
    assert done.status == 0, done.err
    assert "reproduced  yes, to the last bit" in done.out
    assert "nearness = 1.0 / (x[:, :1] - 7.0)" in done.out
    assert f"record {BAD} of the train split: table.npz, row {BAD}" in done.out


def test_changed_code_is_named(checkout: Checkout, capsule: str) -> None:
    model = checkout.root / "tasks" / "models" / "fragile.py"
    try:
        model.write_text(MODEL.replace("1.0 / (x[:, :1] - 7.0)", "x[:, :1] - 7.0"))
        report = checkout.run("flows.replay", capsule, "--json").json()
    finally:
        model.write_text(MODEL)
    assert report["reproduced"] is False
    assert (report["line"], report["examples"]) == (None, [])
    assert [line.split(": ")[0] for line in report["code"]] == ["tasks.models.fragile:Fragile"]


def test_it_runs_without_the_records_and_refuses_what_is_no_capsule(checkout: Checkout, capsule: str) -> None:
    report = checkout.run("flows.replay", capsule, "--store", str(checkout.root / "empty"), "--json").json()
    assert report["examples"] == [{"record": BAD, "file": None, "row": None}]
    done = checkout.run("flows.replay", str(checkout.root), "--json")
    assert done.status == 1
    assert json.loads(done.out.splitlines()[-1])["error"] == "ArtifactDamaged"
