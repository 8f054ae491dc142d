"""The house: imports go flows -> tasks -> datasets, and names don't hide libraries."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("flows", "tasks", "datasets")  # each may import itself and what is to its right
FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top names of all modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_go_one_way(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    above = set(LAYERS[: LAYERS.index(layer)])
    assert not imported(path) & above


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from flows.train import train\n    import tasks.step as s\n")
    assert imported(path) == {"flows", "tasks"}


@pytest.mark.parametrize("path", [p for p in FILES if "datasets" in p.parts], ids=lambda p: p.name)
def test_datasets_know_no_framework(path: Path) -> None:
    assert not imported(path) & {"prefect", "jax", "flax", "grain", "optax", "orbax", "chex"}


@pytest.mark.parametrize("path", sorted((ROOT / "flows").glob("*.py")), ids=lambda path: path.name)
def test_flow_files_define_no_classes_and_shadow_no_library(path: Path) -> None:
    assert not [node.name for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ClassDef)]
    assert path.stem not in known_to_pip()


@functools.cache  # it reads what every distribution says of itself
def known_to_pip() -> Mapping[str, list[str]]:
    return packages_distributions()


@pytest.mark.parametrize("layer", LAYERS)
def test_top_folders_come_from_this_checkout(layer: str) -> None:
    module = importlib.import_module(layer)
    assert Path(str(module.__file__)).parent == ROOT / layer


def test_no_stage_function_is_imported_by_another_task() -> None:
    stages = {"fetch", "convert", "validate", "feed", "fit", "evaluate", "promote"}
    for path in (ROOT / "tasks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("tasks.") in stages:
                taken = {alias.name for alias in node.names} & stages
                assert not taken, f"{path.name} imports stage {taken}"


def test_every_source_file_has_its_test() -> None:
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")}
    # What flows.new wrote for someone's own data is covered by test_datasets
    written = {
        path for path in (ROOT / "datasets").glob("*.py") if "\n\nWritten by flows.new from " in path.read_text()
    }
    sources = {path.stem for path in FILES if path.stem != "__init__" and path not in written}
    assert not sources - tested, f"without a test: {sorted(sources - tested)}"


def test_the_lock_pins_every_file_and_names_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text()
    requirements = re.split(r"\n(?=\S+==)", text)[1:]
    assert len(requirements) > 50
    assert all("--hash=sha256:" in requirement for requirement in requirements)
    directives = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted|@", directives)
