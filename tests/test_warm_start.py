"""A training starts from weights that were asked for: all of them or some, never from others without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import promoted
import pytest
import recorded
import toy
from flow_process import states
from safetensors.numpy import load_file, save_file

from datasets.errors import (
    ArtifactDamaged,
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMismatch,
    ParameterError,
    StoreError,
)
from tasks.artifact import Artifact, Store
from tasks.fit import fit
from tasks.metric_log import read_metrics
from tasks.registry import Registry
from tasks.request import Request, check
from tasks.training import METRICS
from tasks.warm_start import find, load, said
from tasks.weights import WEIGHTS, build_model, learned

PATHS = ["head.bias", "head.kernel", "hidden.bias", "hidden.kernel"]


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    return toy.request_for(tmp_path_factory.mktemp("store"), made)


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


@pytest.fixture(scope="module")
def trained(request_: Request, inputs: Any) -> Artifact:
    return toy.fitted(request_, inputs, "trained")[0]


@pytest.fixture(scope="module")
def folder(request_: Request, trained: Artifact) -> Path:
    return Store(request_.store).path(trained)


def fresh(request: Request, **changes: Any) -> Any:
    recipe, feature = request.dataset.recipe, changes.pop("feature", request.dataset.features["image"])
    return build_model(recipe.model, feature, changes.pop("classes", 3), dropout=0.0, seed=99)


def arrays_of(model: Any) -> dict[str, np.ndarray]:
    return {path: np.asarray(value) for path, value in learned(model).items()}


def test_all_arrays_are_loaded_and_named(request_: Request, folder: Path) -> None:
    model = fresh(request_)
    report = load(find(request_.store, "toy", str(folder), None), model)
    assert report["loaded"] == PATHS
    assert report["fresh"] == report["left"] == []
    assert report["from"] == str(folder / WEIGHTS)
    for path, value in load_file(folder / WEIGHTS).items():
        np.testing.assert_array_equal(arrays_of(model)[path], value)


def test_a_backbone_alone(request_: Request, folder: Path) -> None:
    model = fresh(request_, classes=5)  # the head doesn't fit, and isn't asked for
    before = arrays_of(model)
    report = load(find(request_.store, "toy", str(folder), "hidden.*"), model)
    assert (report["loaded"], report["fresh"], report["left"]) == (PATHS[2:], PATHS[:2], PATHS[:2])
    assert said(report) == (
        "loaded: hidden.bias, hidden.kernel; fresh: head.bias, head.kernel; not taken: head.bias, head.kernel"
    )
    after, stored = arrays_of(model), load_file(folder / WEIGHTS)
    np.testing.assert_array_equal(after["hidden.kernel"], stored["hidden.kernel"])
    np.testing.assert_array_equal(after["head.kernel"], before["head.kernel"])


def test_what_does_not_fit_is_named_and_nothing_is_loaded(request_: Request, folder: Path) -> None:
    model = fresh(request_, classes=5)
    before = arrays_of(model)
    with pytest.raises(CheckpointMismatch, match="nothing was loaded") as caught:
        load(find(request_.store, "toy", str(folder), None), model)
    assert str(caught.value.facts["differences"]).split("\n    ")[1:] == [
        "head.bias: stored float32[3], wanted float32[5]",
        "head.kernel: stored float32[128, 3], wanted float32[128, 5]",
    ]
    for path, value in arrays_of(model).items():
        np.testing.assert_array_equal(value, before[path])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"head.bias": np.zeros(3, np.float16)}, "head.bias: stored float16[3], wanted float32[3]"),
        ({"stranger": np.zeros(2, np.float32)}, "stranger: stored float32[2], wanted nothing"),
        ({"head.bias": None}, "head.bias: stored nothing, wanted float32[3]"),
    ],
)
def test_no_cast_nothing_left_out(
    request_: Request, folder: Path, tmp_path: Path, change: dict[str, Any], line: str
) -> None:
    arrays = {**load_file(folder / WEIGHTS), **change}
    save_file({path: value for path, value in arrays.items() if value is not None}, tmp_path / "w.safetensors")
    with pytest.raises(CheckpointMismatch) as caught:
        load(find(request_.store, "toy", str(tmp_path / "w.safetensors"), None), fresh(request_))
    assert str(caught.value.facts["differences"]).strip() == line


def test_the_champion(request_: Request, trained: Artifact, folder: Path) -> None:
    with pytest.raises(ParameterError, match="no champion"):
        find(request_.store, "nobody", "champion", None)
    registry = Registry(Store(request_.store), "toy")
    registry.crown(registry.add(trained, {}))
    start = find(request_.store, "toy", "champion", None)
    assert start.path == request_.store / "models" / "toy" / "v1" / WEIGHTS
    assert start.digest == find(request_.store, "toy", str(folder), None).digest


def test_a_checkpoint(request_: Request, trained: Artifact, folder: Path) -> None:
    step = request_.store / "checkpoints" / "toy" / "trained" / "18"
    start = find(request_.store, "toy", str(step), None)
    assert start.digest == find(request_.store, "toy", str(folder), None).digest  # the last one holds the same weights
    assert load(start, fresh(request_))["loaded"] == PATHS


def test_damage_is_found(request_: Request, folder: Path, tmp_path: Path) -> None:
    import shutil

    copied = Path(shutil.copytree(folder, tmp_path / "weights"))
    step = Path(shutil.copytree(request_.store / "checkpoints" / "toy" / "trained" / "18", tmp_path / "18"))
    for path in (copied / WEIGHTS, max(step.rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(ArtifactDamaged, match="were edited"):
        find(request_.store, "toy", str(copied), None)
    with pytest.raises(CheckpointCorrupt):
        find(request_.store, "toy", str(step), None)
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(CheckpointError, match="can't be read"):
        find(request_.store, "toy", str(tmp_path / "text"), None)


def test_weights_that_change_during_the_run_are_refused(request_: Request, folder: Path, tmp_path: Path) -> None:
    arrays, path = load_file(folder / WEIGHTS), tmp_path / "w.safetensors"
    save_file(arrays, path)
    start = find(request_.store, "toy", str(path), "hidden.*")
    save_file({**arrays, "head.bias": arrays["head.bias"] + 1}, path)
    load(start, fresh(request_))  # what isn't taken may change
    save_file({**arrays, "hidden.bias": arrays["hidden.bias"] + 1}, path)
    with pytest.raises(StoreError, match="changed during the run"):
        load(start, fresh(request_))


def test_requests_that_can_not_work(request_: Request, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no weights to start from"):
        check("mnist", store=tmp_path, warm_start=tmp_path / "absent")
    with pytest.raises(ParameterError, match="no champion"):
        check("mnist", store=tmp_path, warm_start="champion")
    with pytest.raises(ParameterError, match="fits none"):
        check("mnist", store=tmp_path, warm_start=folder, warm_start_only="hidden.*,tail.*")
    with pytest.raises(ParameterError, match="without weights"):
        check("mnist", store=tmp_path, warm_start_only="hidden.*")
    start = check("mnist", store=tmp_path, warm_start=folder, warm_start_only="hidden.*, head.bias").warm_start
    assert start is not None
    assert start.only == ("hidden.*", "head.bias")


def test_the_arrays_that_are_taken_decide_the_key_and_their_place_does_not(
    request_: Request, folder: Path, tmp_path: Path
) -> None:
    arrays = load_file(folder / WEIGHTS)
    save_file(arrays, tmp_path / "same.safetensors")
    save_file({**arrays, "head.bias": arrays["head.bias"] + 1}, tmp_path / "other.safetensors")

    def key(source: Path | None, only: str | None = None) -> Any:
        start = None if source is None else find(request_.store, "toy", str(source), only)
        return toy.key_parts(fit, replace(request_, warm_start=start))

    assert key(folder) == key(tmp_path / "same.safetensors")
    assert key(folder) != key(tmp_path / "other.safetensors")
    assert key(folder, "hidden.*") == key(tmp_path / "other.safetensors", "hidden.*")
    assert key(None) not in (key(folder), key(folder, "hidden.*"))


def test_a_training_goes_on_from_the_weights_and_says_so(
    request_: Request, inputs: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cold = read_metrics(folder / METRICS)
    warm = replace(request_, warm_start=find(request_.store, "toy", str(folder), None))
    with caplog.at_level("INFO", "gristmill"):
        artifact, job = toy.fitted(warm, inputs, "warm")
    rows = read_metrics(Store(request_.store).path(artifact) / METRICS)
    last = [row["loss"] for row in cold if "loss" in row][-5:]
    assert rows[0]["step"] == 0
    assert rows[0]["loss"] < cold[0]["loss"] * 0.9
    assert abs(rows[0]["loss"] - np.mean(last)) < 0.2
    assert job.notes["warm_start"]["loaded"] == PATHS
    assert f"warm start from {folder / WEIGHTS}: loaded: head.bias" in caplog.text
    assert toy.fitted(warm, inputs, "warm-again")[0].digest == artifact.digest


def test_the_form_and_the_command_offer_it() -> None:
    from flows.train import options, train
    from tasks.command import Command

    fields = train.parameters.properties
    for name in ("warm_start", "warm_start_only", "keep_best", "checkpoint_every"):
        assert fields[name]["description"]
    parsed = options(Command("flows.train", "")).parser.parse_args(
        ["mnist", "--warm-start", "champion", "--warm-start-only", "first.*", "--keep-best", "2"]
    )
    assert (parsed.warm_start, parsed.warm_start_only, parsed.keep_best) == ("champion", "first.*", 2)


def test_a_run_that_starts_from_the_champion(prefect_server: str, tmp_path: Path) -> None:
    from flows.train import train

    asked = recorded.request(tmp_path / "store")
    store = asked.store

    def run(**changes: Any) -> dict[str, Any]:
        summary: Any = train(
            "toy", model="mlp", epochs=5, batch_size=16, store=str(store), raw=str(asked.raw), **changes
        )
        return summary

    def first_loss(summary: dict[str, Any]) -> float:
        return read_metrics(Path(summary["artifacts"]["fit"]) / METRICS)[0]["loss"]

    patch = promoted.instead_of_a_file(asked.dataset)
    try:
        cold, warm = run(), run(warm_start="champion", warm_start_only="hidden.*")
        whole, again = (run(warm_start=str(store / "models" / "toy" / "v1")) for _ in range(2))
    finally:
        patch.undo()
    assert cold["warm_start"] is None
    assert warm["warm_start"]["from"] == str(store / "models" / "toy" / "v1" / WEIGHTS)
    assert warm["warm_start"]["loaded"] == PATHS[2:]
    assert warm["warm_start"]["fresh"] == warm["warm_start"]["left"] == PATHS[:2]
    assert states(warm)["feed"] == "cached"
    assert states(warm)["fit"] == "ran"
    assert first_loss(whole) < first_loss(warm) * 0.9
    assert first_loss(whole) < first_loss(cold) * 0.9
    assert states(again)["fit"] == "cached"
