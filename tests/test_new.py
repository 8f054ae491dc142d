"""From a file or folder of someone's own to a trained model: two commands, nothing edited."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scaffold_samples as samples
from flow_process import finish

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, as a new user has them."""
    folder = tmp_path_factory.mktemp("checkout")
    for layer in ("flows", "tasks", "datasets"):
        shutil.copytree(ROOT / layer, folder / layer, ignore=shutil.ignore_patterns("__pycache__", "raw"))
    shutil.copy(ROOT / "prefect.toml", folder)
    return folder


def new(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.new", *options]
    return subprocess.run(command, cwd=checkout, text=True, capture_output=True, timeout=120, check=False)


def train(checkout: Path, command: str, *options: str) -> dict:
    words = [sys.executable, *command.split()[1:], *options, "--json", f"--store={checkout / 'store'}"]
    process = subprocess.Popen(words, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return finish(process)


KINDS = {
    "pictures": (samples.pictures, "pets", (), "cnn", 12),
    "table": (samples.table, "pets.csv", ("--label=kind",), "mlp", 80),
    "nights": (samples.parquet, "nights", ("--label=kind",), "mlp", "ByHash"),
    "visits": (samples.visits, "visits.csv", ("--label=kind",), "mlp", "ByTime"),
    "shapes": (samples.arrays, "shapes.npz", (), "cnn", 60),
}


SLOW = ("pictures", "shapes", "nights", "visits")  # what they prove beside the others is proven by tests of their parts


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in KINDS])
def test_own_data_trains_unedited(prefect_server: str, checkout: Path, tmp_path: Path, kind: str) -> None:
    make, name, options, model, tested = KINDS[kind]
    made = new(checkout, kind, str(make(tmp_path / name)), *options, "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout.splitlines()[-1])
    assert told["next"] == f"python -m flows.train {kind}"
    assert (checkout / told["file"]).is_file()
    assert f'model="{model}"' in (checkout / told["file"]).read_text()
    summary = train(checkout, told["next"], "--epochs=5")
    if isinstance(tested, str):  # a split of about a fifth
        assert f"splits={tested}(" in (checkout / told["file"]).read_text()
        assert 60 <= summary["metrics"]["examples"] <= 180
    else:
        assert summary["metrics"]["examples"] == tested
    assert summary["metrics"]["accuracy"] > 0.8
    assert summary["decision"]["promoted"]


def test_a_wrong_request_is_a_usage_error_and_writes_nothing(checkout: Path, tmp_path: Path) -> None:
    before = sorted((checkout / "datasets").glob("*.py"))
    path = samples.table(tmp_path / "pets.csv")
    for options, said in ((("mnist", str(path)), "this name is taken"), (("pets", str(path)), "which column"),
                          (("pets", str(tmp_path / "gone.csv")), "nothing at this path")):  # fmt: skip
        made = new(checkout, *options)
        assert made.returncode == 2
        assert said in made.stderr
    assert sorted((checkout / "datasets").glob("*.py")) == before
