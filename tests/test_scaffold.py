from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scaffold_samples as samples
from mixed import InMemory

import datasets
from datasets.errors import DataError, ParameterError, SchemaError
from datasets.schema import Dataset, RawFile
from datasets.splits import ByFraction
from tasks.scaffold import checked_name, first_block, scaffold
from tasks.transform import learned


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A datasets folder of its own, whose modules are forgotten afterwards."""
    made = tmp_path / "datasets"
    made.mkdir()
    (made / "taken.py").write_text("DATASET = 1\n")
    (made / "readers").mkdir()
    monkeypatch.setattr(datasets, "FOLDER", made)
    monkeypatch.setattr(datasets, "__path__", [str(made), *datasets.__path__])
    before = set(sys.modules)
    yield made
    for name in set(sys.modules) - before:
        if name.startswith("datasets."):
            del sys.modules[name]


def test_what_is_written_is_a_dataset_that_reads_the_data(folder: Path, tmp_path: Path) -> None:
    path = samples.table(tmp_path / "pets.csv")
    told = scaffold("pets", str(path), label="kind")
    assert told["file"] == "datasets/pets.py"
    assert [what.split(" ")[0] for what in told["left_out"]] == ["pet_id", "name"]
    made = datasets.load("pets")
    assert isinstance(made, Dataset)
    assert made.source.files == (RawFile("pets.csv"),)
    assert made.splits == ByFraction({"train": 0.8, "test": 0.2}, stratify="label")
    (block,) = made.read(tmp_path)
    rows = samples.columns(400)
    assert block.columns["label"].tolist() == [samples.CLASSES.index(str(kind)) for kind in rows["kind"]]
    fitted = learned(made, InMemory(block.columns))
    inputs = fitted.apply(block.columns)["inputs"]
    assert inputs.shape == (400, 5)
    weight = np.array(rows["weight"], float)
    np.testing.assert_allclose(inputs[:, 0], (weight - weight.mean()) / weight.std(), atol=1e-5)
    gaps = [i for i, age in enumerate(rows["age"]) if age is None]
    ages = sorted(int(str(age)) for age in rows["age"] if age is not None)
    like = [i for i, age in enumerate(rows["age"]) if age == ages[(len(ages) - 1) // 2]]
    assert set(inputs[gaps, 1].tolist()) == set(inputs[like, 1].tolist())
    assert bytes(block.columns["name"][0]).rstrip(b"\0").decode() == rows["name"][0]


@pytest.mark.parametrize("kind", ["pictures", "table", "parquet", "arrays"])
def test_the_text_is_as_the_house_wants_it(folder: Path, tmp_path: Path, kind: str) -> None:
    path = getattr(samples, kind)(tmp_path / f"data{'.csv' if kind == 'table' else '.npz' if kind == 'arrays' else ''}")
    scaffold("pets", str(path), label="kind" if kind in ("table", "parquet") else None)
    text = (folder / "pets.py").read_text()
    assert "Record 0 (" in text.split('"""')[1]
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(Path(__file__).parent.parent / "pyproject.toml"), str(folder / "pets.py")]
    checked = subprocess.run([*ruff, "check", "--ignore=S108", *config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    formatted = subprocess.run([*ruff, "format", "--diff", *config], capture_output=True, text=True, check=False)
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.parametrize(
    "name", ["Pets", "1pets", "my pets", "my-pets", "", "class", "../pets", "pets.py", "é", "x" * 61]
)
def test_names_that_no_dataset_can_have(folder: Path, name: str) -> None:
    with pytest.raises(ParameterError, match="can't be the name"):
        checked_name(name)


def test_a_near_name_is_offered(folder: Path) -> None:
    with pytest.raises(ParameterError) as caught:
        checked_name("My-Pets")
    assert caught.value.cure == "my_pets"


@pytest.mark.parametrize("name", ["taken", "readers"])
def test_names_that_are_taken(folder: Path, name: str) -> None:
    with pytest.raises(ParameterError, match="is taken"):
        checked_name(name)
    assert checked_name("free") == "free"


def test_data_that_cannot_be_read_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    path = samples.parquet(tmp_path / "nights")
    part = path / "night=2" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(DataError, match="Parquet"):
        scaffold("nights", str(path), label="kind")
    assert not (folder / "nights.py").exists()


def test_what_is_declared_is_held_against_the_first_rows(tmp_path: Path) -> None:
    path = samples.arrays(tmp_path / "shapes.npz")
    text = (
        "from datasets.readers import arrays\nfrom datasets.schema import *\n"
        'READ = {"inputs": Feature("uint8", (8, 8, 1)), "label": Feature("int32", classes=("0", "1", "2"))}\n'
        'def read(raw):\n    yield from arrays.blocks(raw, "shapes.npz", READ, columns={"inputs": "x", "label": "y"})\n'
        'DATASET = Dataset("", Source(), read, {**READ, "inputs": Feature("uint8", SHAPE)}, "inputs", "label",\n'
        '    {"train": Rows(0, 1), "test": Rows(1, 2)})\n'
    )
    assert first_block(text.replace("SHAPE", "(8, 8, 1)"), "x", path.parent).row == 0
    with pytest.raises(SchemaError, match="aren't as the new file declares") as caught:
        first_block(text.replace("SHAPE", "(8, 8)"), "x", path.parent)
    assert caught.value.facts["field"] == "inputs"
