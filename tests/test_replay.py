"""A capsule that the flow wrote is enough: another process builds the step, fails in the same way, and says why."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

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
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this project with a dataset and a model more."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("flows", "tasks", "datasets", "prefect.toml"):
        source = toy.ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3)).astype(np.float32)
    x[BAD, 0] = 7
    (root / "raw").mkdir()
    np.savez(root / "raw" / "table.npz", x=x, label=(np.arange(200) % 3).astype(np.int32))
    raw = (root / "raw" / "table.npz").read_bytes()
    text = DATASET.format(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))
    (root / "datasets" / "sevens.py").write_text(text)
    (root / "tasks" / "models" / "fragile.py").write_text(MODEL)
    return root


def command(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *options],
        cwd=checkout,
        env=dict(os.environ),
        text=True,
        capture_output=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def capsule(checkout: Path, prefect_server: str) -> Path:
    """Of a training that failed."""
    done = command(checkout, "flows.train", "sevens", f"--raw={checkout / 'raw'}", f"--store={checkout / 'store'}")
    assert done.returncode == 1, done.stderr[-3000:]
    found = re.search(r"python -m flows\.replay (\S+)", done.stderr)
    assert found, done.stderr[-3000:]
    return Path(found[1])


def replayed(checkout: Path, capsule: Path) -> dict[str, Any]:
    done = command(checkout, "flows.replay", str(capsule), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_another_process_finds_line_and_example(checkout: Path, capsule: Path) -> None:
    report = replayed(checkout, capsule)
    assert report["reproduced"] is True
    assert (report["kind"], report["loss"], report["dataset"]) == ("loss", "nan", "sevens")
    line = next(i for i, text in enumerate(MODEL.splitlines(), 1) if "nearness = " in text)
    model = checkout / "tasks" / "models" / "fragile.py"
    assert report["line"] == f"{model}:{line} in __call__: nearness = 1.0 / (x[:, :1] - 7.0)"
    assert report["nan_line"].startswith(f"{model}:{line + 1} in __call__")
    assert report["examples"] == [{"record": BAD, "file": "table.npz", "row": BAD}]
    assert report["leaves"]
    assert (report["versions"], report["code"]) == ([], [])


def test_what_a_person_reads(checkout: Path, capsule: Path) -> None:
    done = command(checkout, "flows.replay", str(capsule))
    assert done.returncode == 0, done.stderr
    assert "reproduced  yes, to the last bit" in done.stdout
    assert "nearness = 1.0 / (x[:, :1] - 7.0)" in done.stdout
    assert f"record {BAD} of the train split: table.npz, row {BAD}" in done.stdout


def test_changed_code_is_named(checkout: Path, capsule: Path) -> None:
    model = checkout / "tasks" / "models" / "fragile.py"
    try:
        model.write_text(MODEL.replace("1.0 / (x[:, :1] - 7.0)", "x[:, :1] - 7.0"))
        report = replayed(checkout, capsule)
    finally:
        model.write_text(MODEL)
    assert report["reproduced"] is False
    assert (report["line"], report["examples"]) == (None, [])
    assert [line.split(": ")[0] for line in report["code"]] == ["tasks.models.fragile:Fragile"]


def test_it_runs_without_the_records_and_refuses_what_is_no_capsule(checkout: Path, capsule: Path) -> None:
    empty = checkout / "empty"
    done = command(checkout, "flows.replay", str(capsule), "--store", str(empty), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["examples"] == [{"record": BAD, "file": None, "row": None}]
    done = command(checkout, "flows.replay", str(checkout), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["error"] == "ArtifactDamaged"
