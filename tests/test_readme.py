"""What the README promises a newcomer: its example works as it stands, its commands and files exist."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_process import finish
from sklearn.datasets import load_digits

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the sources, as a new user has them, with the README's dataset in it."""
    for layer in ("flows", "tasks", "datasets"):
        shutil.copytree(ROOT / layer, tmp_path / layer, ignore=shutil.ignore_patterns("__pycache__", "raw"))
    shutil.copy(ROOT / "prefect.toml", tmp_path)
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "DATASET =" in block)
    (tmp_path / "datasets" / "digits.py").write_text(code)
    (tmp_path / "datasets" / "raw" / "digits").mkdir(parents=True)
    digits: Any = load_digits()
    np.savez(
        tmp_path / "datasets" / "raw" / "digits" / "digits.npz",
        image=digits.images.astype(np.uint8), label=digits.target.astype(np.int32),
    )  # fmt: skip
    return tmp_path


def test_the_example_dataset_trains(prefect_server: str, checkout: Path) -> None:
    command = [sys.executable, "-m", "flows.train", "digits", "--epochs=2", "--json", f"--store={checkout / 'store'}"]
    summary = finish(subprocess.Popen(command, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert summary["metrics"]["examples"] == 297
    assert summary["metrics"]["accuracy"] > 0.85


def test_the_example_for_those_who_know_grain_works(tmp_path: Path) -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "DataLoader(" in block)
    (tmp_path / "example.py").write_text(code)
    known = runpy.run_path(str(tmp_path / "example.py"))
    batches = list(known["loader"])
    passing = int((known["X"].max(axis=1) > 0.5).sum())
    assert len(batches) == 3 * (passing // 32) > 0
    assert all(batch["x"].shape == (32, 2) and batch["label"].shape == (32,) for batch in batches)
    assert [int(batch["real"].sum()) for batch in known["padded"]] == [32, 32, 32, 4]
    assert known["state"]["step"] == 5


def test_every_command_is_in_the_readme() -> None:
    for path in (ROOT / "flows").glob("*.py"):
        if path.stem != "__init__":
            assert f"{path.stem}.py" in README or f"flows.{path.stem}" in README, path.stem
    for target in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE):
        assert f"make {target}" in README, target


def test_every_file_in_the_tree_exists() -> None:
    tree = re.search(r"## What is where\n+```\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    known = {path.name for layer in ("flows", "tasks", "datasets", "tests") for path in (ROOT / layer).rglob("*.py")}
    named = set(re.findall(r"\b(\w+\.py)\b", tree.group(1)))
    assert len(named) > 20
    assert named <= known
