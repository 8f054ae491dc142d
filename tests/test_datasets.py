"""A dataset is a file; the others don't matter to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasets
from datasets.errors import SchemaError, UnknownNameError
from datasets.schema import Dataset


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty datasets folder; modules that a test imports from it are forgotten again."""
    monkeypatch.setattr(datasets, "FOLDER", tmp_path)
    monkeypatch.setattr(datasets, "__path__", [str(tmp_path), *datasets.__path__])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("datasets."):
            del sys.modules[name]


def test_files_that_define_a_dataset_are_the_names() -> None:
    assert {"mnist", "mnist_full", "fashion_mnist"} <= set(datasets.names())
    assert not {"errors", "schema", "augment", "__init__"} & set(datasets.names())


@pytest.mark.parametrize("name", datasets.names())
def test_every_dataset_of_the_project_loads(name: str) -> None:
    assert isinstance(datasets.load(name), Dataset)


def test_only_the_text_is_read_so_that_a_broken_file_hides_no_other(folder: Path) -> None:
    (folder / "broken.py").write_text("import does_not_exist\nDATASET = (\n")
    (folder / "annotated.py").write_text("DATASET: int = 1\n")
    (folder / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\nDATASET = 1\n")
    (folder / "helper.py").write_text('"""\nDATASET is not defined here.\n"""\nDATASETS = 1\n    # DATASET = 2\n')
    (folder / "uses.py").write_text("print(DATASET)\n")
    (folder / "note.txt").write_text("DATASET = 1\n")
    assert datasets.names() == ["annotated", "broken", "latin"]


@pytest.mark.parametrize("name", ["mnits", "mnist_ful", "MNIST"])
def test_an_unknown_name_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"there is no dataset '{name}'") as caught:
        datasets.load(name)
    assert "mnist" in str(caught.value.facts["known"])
    if name != "MNIST":
        assert "did you mean mnist" in str(caught.value.cure)


@pytest.mark.parametrize("name", ["errors", "readers.idx", "../datasets/mnist", "mnist.py", "", 3, None])
def test_what_is_no_dataset_is_not_loaded(name: str) -> None:
    with pytest.raises(UnknownNameError):
        datasets.load(name)


@pytest.mark.parametrize(("text", "got"), [("DATASET = 3\n", "int"), ("'''\nDATASET = 1\n'''\n", "NoneType")])
def test_a_dataset_that_is_none_is_a_schema_error(folder: Path, text: str, got: str) -> None:
    (folder / "wrong.py").write_text(text)
    with pytest.raises(SchemaError, match="DATASET isn't a Dataset") as caught:
        datasets.load("wrong")
    assert caught.value.facts["file"] == "datasets/wrong.py"
    assert caught.value.facts["got"] == got


def test_a_new_file_is_a_dataset_at_once(folder: Path) -> None:
    (folder / "copied.py").write_text("from datasets.mnist import DATASET as OTHER\nDATASET = OTHER\n")
    assert datasets.load("copied") is datasets.load("copied")
    assert isinstance(datasets.load("copied"), Dataset)
