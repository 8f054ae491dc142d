"""A label that is a number: metrics against scikit-learn, and whole runs, from raw rows to predictions and export."""

from __future__ import annotations

import json
import shutil
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import estimates
import jax.export
import numpy as np
import promoted
import pyarrow.parquet as pq
import pytest
import recorded
import sklearn.metrics as sk

from tasks import regression
from tasks.artifact import Store
from tasks.durable import read_json
from tasks.evaluate import METRICS, MISTAKES, PREDICTED_TRUE
from tasks.export import export_model
from tasks.handover import listing
from tasks.predict import predict_raw
from tasks.predictor import Predictions
from tasks.promote import DECISION
from tasks.publish import table
from tasks.registry import Registry
from tasks.run_page import run_page
from tasks.run_record import artifact
from tasks.weights import load_model

NOISE = 10  # of the table's prices
_HOME = TemporaryDirectory(prefix="gristmill-regression-")


def answers(size: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.normal(5000, 3, size)
    said = (truth + random.normal(0.5, 1, size)).astype(np.float32)[:, None]
    return truth, said, np.square(truth - said[:, 0]).astype(np.float32)


def test_metrics_are_those_of_scikit_learn() -> None:
    truth, said, losses = answers()
    made = regression.score(truth, said, losses)
    assert made["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, said[:, 0]), rel=1e-9)
    assert made["mae"] == pytest.approx(sk.mean_absolute_error(truth, said[:, 0]), rel=1e-9)
    assert made["r2"] == pytest.approx(sk.r2_score(truth, said[:, 0]), rel=1e-9)
    assert made["loss"] == pytest.approx(made["rmse"] ** 2, rel=1e-5)
    assert made["examples"] == 200
    assert set(made["intervals"]) == {"rmse", "mae", "r2", "loss"}
    for name, (low, high) in made["intervals"].items():
        assert low < made[name] < high, name
    assert made == regression.score(truth, said, losses)


def test_an_interval_is_as_wide_as_theory_says() -> None:
    truth, said, losses = answers(2000)
    low, high = regression.score(truth, said, losses)["intervals"]["mae"]
    expected = 2 * 1.96 * np.abs(truth - said[:, 0]).std() / np.sqrt(2000)
    assert high - low == pytest.approx(expected, rel=0.15)


def test_a_draw_is_measured_as_its_examples_are() -> None:
    truth, said, losses = answers(50)
    counts = np.random.default_rng(1).multinomial(50, np.full(50, 1 / 50), size=3).astype(np.float32)
    for name, measure in regression.measures(truth, said, losses).items():
        for row, got in zip(counts, measure(counts), strict=True):
            rows = np.repeat(np.arange(50), row.astype(int))
            fresh = regression.score(truth[rows], said[rows], losses[rows])
            assert got == pytest.approx(fresh[name], rel=1e-6), name
    assert set(regression.measures(truth, said, losses, {"mae", "accuracy"})) == {"mae"}


def test_of_one_value_there_is_no_variance_to_explain() -> None:
    truth, said = np.full(40, 7.1), np.linspace(6, 8, 40, dtype=np.float32)[:, None]
    made = regression.score(truth, said, np.square(truth - said[:, 0]))
    assert (made["r2"], made["intervals"]["r2"]) == (None, None)
    assert made["mae"] > 0
    json.dumps(made, allow_nan=False)
    assert regression.score(truth[:1], said[:1], truth[:1])["r2"] is None


def test_a_rise_is_a_share_of_the_champions_error() -> None:
    truth, rows = np.array([1.0, 2.0, 3.0, 100.0]), np.array([True, True, True, False])

    def off(by: float) -> Predictions:
        return Predictions(truth, (truth + by).astype(np.float32)[:, None], np.full(4, by**2, np.float32))

    made = regression.rise(off(3.0), off(2.0), rows)
    assert made == {"got": pytest.approx(0.5), "candidate_rmse": pytest.approx(3), "champion_rmse": pytest.approx(2)}
    assert regression.rise(off(1.0), off(2.0), rows)["got"] == pytest.approx(-0.5)
    assert regression.rise(off(0.0), off(0.0), rows)["got"] == 0.0
    assert regression.rise(off(1.0), off(0.0), rows)["got"] is None


def test_the_largest_errors_first_with_their_raw_rows() -> None:
    truth = np.arange(50, dtype=np.float32)
    said = truth.copy()
    said[[7, 30, 12]] += [5, -9, 0.5]
    made = regression.mistakes(truth, said[:, None], np.square(said - truth), [["one", 0, 20], ["two", 100, 30]])
    found = [(row["file"], row["row"], row["error"]) for row in made]
    assert found == [("two", 110, -9), ("one", 7, 5), ("one", 12, 0.5)]
    assert (made[0]["truth"], made[0]["predicted"], made[0]["loss"]) == (30.0, 21.0, 81.0)
    assert len(regression.mistakes(truth, truth[:, None] + 1, truth, [["one", 0, 50]])) == regression.MOST


# ---------------------------------------------------------------------------------------------------------- whole runs


@cache
def first_run() -> tuple[Path, dict[str, Any]]:
    store = Path(_HOME.name)
    return store, recorded.record(estimates.request(store), "aaaa1111-one")


def read_json_of(store: Path, record: dict[str, Any], stage: str, name: str) -> Any:
    return read_json(Store(store).path(artifact(record, stage)) / name)


def test_a_run_learns_the_number_and_tells_it_in_the_records_unit() -> None:
    store, record = first_run()
    metrics = read_json_of(store, record, "evaluate", METRICS)
    assert metrics["examples"] == estimates.ROWS - estimates.TRAIN
    assert NOISE * 0.8 < metrics["rmse"] < NOISE * 2  # of prices around 900 with a deviation of 75
    assert metrics["r2"] > 0.9
    test = estimates.table()["price"][estimates.TRAIN :].astype(np.float64)
    said = np.load(Store(store).path(artifact(record, "evaluate")) / "predictions.npz")["logits"]
    assert metrics["mae"] == pytest.approx(sk.mean_absolute_error(test, said[:, 0]), rel=1e-6)
    parts = metrics["slices"]["storey"]
    assert sum(row["examples"] for row in parts.values()) == metrics["examples"]
    low = estimates.table()["storey"][estimates.TRAIN :] == 0
    assert parts["low"]["rmse"] == pytest.approx(sk.root_mean_squared_error(test[low], said[low, 0]), rel=1e-6)
    assert parts["low"]["intervals"]["rmse"][0] < parts["low"]["rmse"] < parts["low"]["intervals"]["rmse"][1]


def test_the_worst_are_traced_to_their_raw_rows() -> None:
    store, record = first_run()
    rows = read_json_of(store, record, "evaluate", MISTAKES)
    assert len(rows) == regression.MOST
    for row in rows:
        assert row["file"] == estimates.FILE
        assert row["truth"] == pytest.approx(float(estimates.table()["price"][row["row"]]), rel=1e-6)
    assert abs(rows[0]["error"]) == max(abs(row["error"]) for row in rows)


def test_the_decision_and_the_card_speak_of_errors() -> None:
    store, record = first_run()
    decision = read_json_of(store, record, "promote", DECISION)
    assert (decision["promoted"], decision["gate"]["metric"]) == (True, "rmse")
    registry = Registry(Store(store), "toy")
    folder = Store(store).path(registry.find("v1"))
    card = (folder / "card.md").read_text()
    assert "| rmse |" in card
    assert "Predicted against true" in card
    assert "onfusion" not in card
    assert "accuracy" not in card
    (row,) = listing(registry)["versions"]
    assert row["rmse"] == record["metrics"]["rmse"]


def test_the_pages_of_a_run_show_what_applies() -> None:
    store, record = first_run()
    page = run_page(Store(store), record).html(contents=True)
    assert f"RMSE {record['metrics']['rmse']:.4g}" in page
    assert "Predicted against true" in page
    assert "Confusion" not in page
    assert "<th>counted</th>" not in page
    assert "standard deviations of the train split" in page
    assert page.index("<th>error</th>") < page.index("The raw row of each")  # the largest are seen without a click
    assert (Store(store).path(artifact(record, "evaluate")) / PREDICTED_TRUE).read_bytes()[:4] == b"\x89PNG"
    rows = table(read_json_of(store, record, "evaluate", METRICS))
    assert {row["metric"] for row in rows} == {"rmse", "mae", "r2", "loss"}


def test_predictions_are_numbers_in_the_records_unit(tmp_path: Path) -> None:
    store, record = first_run()
    test = {name: column[estimates.TRAIN :] for name, column in estimates.table().items()}
    raw = estimates.write(tmp_path / "raw" / estimates.FILE, test, labels=False)
    patch = promoted.instead_of_a_file(estimates.dataset())
    try:
        report = predict_raw("toy", raw, tmp_path / "out.parquet", store=store)
    finally:
        patch.undo()
    made = pq.read_table(report["out"])
    assert made.schema.names == ["file", "row", "prediction", "model_version"]
    said = np.load(Store(store).path(artifact(record, "evaluate")) / "predictions.npz")["logits"][:, 0]
    np.testing.assert_allclose(made.column("prediction").to_numpy(), said, rtol=1e-5)


def test_an_exported_model_gives_the_number(tmp_path: Path) -> None:
    store, record = first_run()
    patch = promoted.instead_of_a_file(estimates.dataset())
    try:
        report = export_model("toy", tmp_path / "m", store=str(store))
    finally:
        patch.undo()
    assert report["difference"] < 1e-2
    with zipfile.ZipFile(tmp_path / "m") as file:
        about, program = json.loads(file.read("about.json")), bytearray(file.read("program.bin"))
    assert (about["classes"], about["gives"]) == ([], {"prediction": ["rows"]})
    x = estimates.table()["x"][estimates.TRAIN :]
    made = jax.export.deserialize(program).call({"x": x})
    said = np.load(Store(store).path(artifact(record, "evaluate")) / "predictions.npz")["logits"][:, 0]
    np.testing.assert_allclose(made["prediction"], said, rtol=1e-5)


@pytest.mark.slow
def test_nights_against_the_champion(tmp_path: Path) -> None:
    nights: list[tuple[dict[str, Any], str, int]] = [
        ({"epochs": 2}, "first", 0),
        ({"epochs": 2, "evaluate_every": 7}, "tie", 0),  # another key, equal answers
        ({"epochs": 1, "learning_rate": 1e-4}, "not better", -1),
        ({"epochs": 12}, "better", 1),
    ]
    for night, (recipe, outcome, sign) in enumerate(nights):
        record = recorded.record(estimates.request(tmp_path, recipe=recipe), f"{night}aaa1111-one")
        decision = read_json_of(tmp_path, record, "promote", DECISION)
        assert (decision["outcome"], decision["promoted"]) == (outcome, outcome in ("first", "better"))
        if outcome != "first":
            test = decision["test"]
            assert (test["metric"], test["method"]) == ("rmse", "paired bootstrap")
            assert np.sign(test["champion"] - test["candidate"]) == sign


def test_champion_and_candidate_are_held_to_the_same_raw_numbers(tmp_path: Path) -> None:
    """Each was trained on labels that its own train split scaled; the second one's weren't scaled at all."""
    made, first = first_run()
    store = Path(shutil.copytree(made, tmp_path / "store"))
    second = recorded.record(estimates.request(store, recipe={"epochs": 2}, transforms={}), "bbbb2222-two")
    test = read_json_of(store, second, "promote", DECISION)["test"]
    assert test["champion"] == pytest.approx(first["metrics"]["rmse"], rel=1e-5)
    assert test["candidate"] == pytest.approx(second["metrics"]["rmse"], rel=1e-5)
    model, _ = load_model(Store(store).path(artifact(second, "fit")))
    said = np.load(Store(store).path(artifact(second, "evaluate")) / "predictions.npz")["logits"]
    plain: Any = model
    np.testing.assert_allclose(plain(estimates.table()["x"][estimates.TRAIN :]), said, rtol=1e-4)
