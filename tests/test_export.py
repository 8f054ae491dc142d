from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.export
import mixed
import numpy as np
import promoted
import pytest
import toy

from datasets.errors import ParameterError, UnknownNameError
from tasks.artifact import Artifact, Store
from tasks.evaluate import evaluate_weights
from tasks.export import export_model, show
from tasks.registry import Registry

# What `pip install jax` brings, and nothing else
ALONE = ("jax", "jaxlib", "numpy", "numpy.libs", "ml_dtypes", "opt_einsum", "scipy", "scipy.libs")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Artifact], dict[str, Any]]]:
    store = tmp_path_factory.mktemp("store")
    made = promoted.promote(store)[1]
    patch = promoted.instead_of_a_file(promoted.dataset())
    yield store, made, export_model(promoted.NAME, store / "toy.model", store=store)
    patch.undo()


def raw_inputs() -> dict[str, np.ndarray]:
    columns = {name: column[mixed.TRAIN :] for name, column in mixed.table().items() if name != "label"}
    return {**columns, "shop": columns["shop"].astype(np.int32)}


def program_in(path: Path) -> Any:
    with zipfile.ZipFile(path) as file:
        return jax.export.deserialize(bytearray(file.read("program.bin")))


def test_raw_rows_give_the_logits_of_evaluation(
    trained: tuple[Path, dict[str, Artifact], dict[str, Any]],
) -> None:
    store, made, report = trained
    call = program_in(Path(report["out"])).call
    expected = promoted.logits_of(store, made["evaluation"])
    # Evaluation fills its batch of 256 up; so that the same kernels run here, this does too
    full = {name: np.concatenate([c, np.repeat(c[-1:], 256 - len(c), axis=0)]) for name, c in raw_inputs().items()}
    answers = {name: np.asarray(values)[: len(expected)] for name, values in call(full).items()}
    np.testing.assert_array_equal(answers["logits"], expected)
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, atol=1e-6)
    for rows in (1, 7, len(expected)):  # other batch sizes may take other kernels, which add in another order
        some = call({name: column[:rows] for name, column in raw_inputs().items()})
        np.testing.assert_allclose(some["logits"], expected[:rows], rtol=1e-5, atol=1e-5)


def test_the_report_says_size_times_and_difference(
    trained: tuple[Path, dict[str, Artifact], dict[str, Any]],
) -> None:
    from rich.console import Console

    report = trained[2]
    assert report["bytes"] == Path(report["out"]).stat().st_size
    assert report["difference"] == 0
    assert 0 < report["load_s"] < 60
    assert 0 < report["first_call_s"] < 60
    console = Console(record=True, width=200)
    show(report, console)
    assert f"{report['bytes'] / 1e6:.2f} MB" in console.export_text()


def test_the_file_says_what_it_takes_and_gives(trained: tuple[Path, dict[str, Artifact], dict[str, Any]]) -> None:
    with zipfile.ZipFile(trained[2]["out"]) as file:
        assert file.testzip() is None
        about = json.loads(file.read("about.json"))
    assert (about["classes"], about["version"], about["platforms"]) == (["good", "bad"], "v1", ["cpu", "cuda"])
    assert about["takes"]["three"] == {"dtype": "float32", "shape": [3], "low": None, "high": None}
    assert list(about["takes"]) == ["amount", "country", "shop", "three"]
    assert program_in(Path(trained[2]["out"])).platforms == ("cpu", "cuda")


def test_equal_models_are_equal_files(
    trained: tuple[Path, dict[str, Artifact], dict[str, Any]], tmp_path: Path
) -> None:
    export_model(promoted.NAME, tmp_path / "again", "v1", store=trained[0])
    with zipfile.ZipFile(trained[2]["out"]) as one, zipfile.ZipFile(tmp_path / "again") as other:
        assert one.namelist() == other.namelist()
        assert one.read("about.json") == other.read("about.json")


READER = """
import json, sys, zipfile
import numpy as np
sys.path.append(MODEL)
import jax.export
with zipfile.ZipFile(MODEL) as file:
    about, program = json.loads(file.read("about.json")), bytearray(file.read("program.bin"))
answers = jax.export.deserialize(program).call(dict(np.load(INPUTS)))
for name in ("flax", "tasks", "datasets", "prefect", "chex", "flatbuffers"):
    try:
        found = __import__(name).__file__
    except ImportError:
        found = "absent"
    assert found == "absent" or (name == "flatbuffers" and found.startswith(MODEL)), found
np.save(OUT, np.asarray(answers["logits"]))
print(about["classes"])
"""


def jax_alone(folder: Path) -> Path:
    """A folder for sys.path with what JAX needs, and nothing else."""
    folder.mkdir()
    site = Path(str(importlib.util.find_spec("jax").origin)).parent.parent  # type: ignore[union-attr]
    for name in ALONE:
        if (site / name).exists():
            (folder / name).symlink_to(site / name)
    return folder


def test_it_runs_where_there_is_jax_alone(
    trained: tuple[Path, dict[str, Artifact], dict[str, Any]], tmp_path: Path
) -> None:
    store, made, report = trained
    packages = jax_alone(tmp_path / "alone")
    np.savez(tmp_path / "inputs.npz", **raw_inputs())  # type: ignore[arg-type]
    head = f"""
import sys
sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(packages)!r}]
MODEL, INPUTS, OUT = {report["out"]!r}, {str(tmp_path / "inputs.npz")!r}, {str(tmp_path / "out.npy")!r}
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", head + READER], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['good', 'bad']"
    expected = promoted.logits_of(store, made["evaluation"])
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5, atol=1e-5)


def test_pictures_go_in_as_they_are_in_raw_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy.dataset(toy.write_raw(tmp_path / "raw", toy.pictures()))
    request = toy.request_for(tmp_path, made, tmp_path / "raw", model="cnn", epochs=1)
    records = toy.records_of(request)
    weights = mixed.untrained(request, "fit-1")
    evaluation = evaluate_weights(toy.job(request, "evaluate"), records, weights)
    registry = Registry(Store(tmp_path), "toy")
    with registry.lock():
        registry.crown(registry.add(weights, {}))
    monkeypatch.setattr("datasets.names", lambda: ["toy"])
    report = export_model("toy", tmp_path / "toy.model", store=tmp_path)
    assert report["difference"] == 0
    image = toy.pictures()["image"][toy.TRAIN :]
    full = np.concatenate([image, np.repeat(image[-1:], 256 - len(image), axis=0)])
    answers = program_in(tmp_path / "toy.model").call({"image": full})
    np.testing.assert_array_equal(np.asarray(answers["logits"])[: len(image)], promoted.logits_of(tmp_path, evaluation))


def test_a_request_that_can_not_work_is_refused(
    trained: tuple[Path, dict[str, Artifact], dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(UnknownNameError):
        export_model("ghost", tmp_path / "out", store=trained[0])
    with pytest.raises(UnknownNameError):
        export_model(promoted.NAME, tmp_path / "out", "v9", store=trained[0])
    for out in (tmp_path, tmp_path / "no" / "out"):
        with pytest.raises(ParameterError):
            export_model(promoted.NAME, out, store=trained[0])
