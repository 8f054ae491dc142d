from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mixed
import numpy as np
import promoted
import pyarrow.parquet as pq
import pytest
import toy

from datasets.errors import NonFiniteError, ParameterError, SchemaError, StoreError, UnknownNameError
from datasets.schema import Feature, Validation
from tasks import predict as module
from tasks.artifact import Artifact
from tasks.predict import predict_raw, rows_of_a_batch, rows_of_a_part


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Artifact]]:
    store = tmp_path_factory.mktemp("store")
    return store, promoted.promote(store)[1]


@pytest.fixture(autouse=True)
def file() -> Iterator[Any]:
    patch = promoted.instead_of_a_file(promoted.dataset())
    yield patch
    patch.undo()


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return promoted.write_rows(tmp_path / "night.parquet", mixed.table())


def probabilities(out: Path) -> np.ndarray:
    table = pq.read_table(out)
    return np.stack([table.column(f"p_{name}").to_numpy() for name in ("good", "bad")], axis=1)


def test_it_says_what_evaluation_says(trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path) -> None:
    store, made = trained
    out = tmp_path / "out.parquet"
    report = predict_raw(promoted.NAME, raw, out, store=store, part_rows=100)
    assert {n: report[n] for n in ("version", "rows", "raw_rows", "quarantined", "resumed_from")} == {
        "version": "v1", "rows": mixed.ROWS, "raw_rows": mixed.ROWS, "quarantined": 0, "resumed_from": None,
    }  # fmt: skip
    logits = promoted.logits_of(store, made["evaluation"]).astype(np.float64)
    softmax = np.exp(logits - logits.max(1, keepdims=True))
    softmax /= softmax.sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities(out)[mixed.TRAIN :], softmax, atol=1e-6)
    table = pq.read_table(out)
    assert table.column("row").to_pylist() == list(range(mixed.ROWS))
    said = [("good", "bad")[i] for i in softmax.argmax(axis=1)]
    assert table.column("prediction").to_pylist()[mixed.TRAIN :] == said
    assert len(set(said)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["night.parquet", "out.parquet"]


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_no_cut_into_parts_changes_a_value(
    trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path, size: int
) -> None:
    rows = promoted.write_rows(tmp_path / "few.parquet", mixed.table(60))
    predict_raw(promoted.NAME, rows, tmp_path / "a", store=trained[0], part_rows=size)
    predict_raw(promoted.NAME, rows, tmp_path / "b", store=trained[0], part_rows=23)
    one, other = pq.read_table(tmp_path / "a"), pq.read_table(tmp_path / "b")
    assert one.to_pylist() == other.to_pylist()
    assert len(one) == 60
    assert raw.exists()


def test_bad_rows_lie_beside_it(trained: tuple[Path, dict[str, Artifact]], tmp_path: Path) -> None:
    columns = mixed.table(60)
    columns["amount"][[3, 41]] = -7
    raw, out = promoted.write_rows(tmp_path / "raw.parquet", columns), tmp_path / "out.parquet"
    report = predict_raw(promoted.NAME, raw, out, store=trained[0])
    assert (report["rows"], report["quarantined"], list(report["reasons"].values())) == (58, 2, [2])
    assert len(Path(report["quarantine"]).read_text().splitlines()) == 2
    assert pq.read_table(out).column("row").to_pylist() == [i for i in range(60) if i not in (3, 41)]
    promoted.write_rows(raw, mixed.table(60))
    assert predict_raw(promoted.NAME, raw, out, store=trained[0])["quarantine"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "raw.parquet"]


def test_a_bad_row_ends_it_where_the_policy_is_to_fail(
    trained: tuple[Path, dict[str, Artifact]], tmp_path: Path, file: Any
) -> None:
    file.setattr("datasets.load", lambda name: promoted.dataset(validation=Validation()))
    columns = mixed.table(60)
    columns["amount"][3] = -7
    raw = promoted.write_rows(tmp_path / "raw.parquet", columns)
    with pytest.raises(SchemaError, match="out of range"):
        predict_raw(promoted.NAME, raw, tmp_path / "out.parquet", store=trained[0])
    assert not (tmp_path / "out.parquet").exists()


CHILD = """
import sys, time
import promoted
from tasks import predict
from tasks.prediction_parts import Parts
write = Parts.write
def slow(self, table):
    write(self, table)
    print(self.done, flush=True)
    time.sleep(30 if self.done == 3 else 0)
Parts.write = slow
promoted.instead_of_a_file(promoted.dataset())
predict.predict_raw(promoted.NAME, sys.argv[1], sys.argv[2], store=sys.argv[3], part_rows=50)
"""


def test_a_kill_costs_no_part_and_changes_no_byte(
    trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    predict_raw(promoted.NAME, raw, whole, store=trained[0], part_rows=50)
    arguments = ", ".join(repr(str(path)) for path in ("-", raw, out, trained[0]))
    process = toy.python(f"import sys; sys.argv = [{arguments}]\n{CHILD}", stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + 90
        while process.stdout.readline().strip() != "3" and time.monotonic() < deadline:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not out.exists()
    report = predict_raw(promoted.NAME, raw, out, store=trained[0], part_rows=50)
    assert (report["resumed_from"], report["rows"]) == (150, mixed.ROWS)
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("change", ["raw", "reader", "part_rows"])
def test_parts_of_something_else_are_made_again(
    trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path, file: Any, change: str
) -> None:
    def stop(self: Any) -> int:
        raise KeyboardInterrupt

    file.setattr("tasks.prediction_parts.Parts.join", stop)
    with pytest.raises(KeyboardInterrupt):
        predict_raw(promoted.NAME, raw, tmp_path / "out", store=trained[0], part_rows=50)
    file.undo()
    made = promoted.dataset()
    if change == "raw":
        promoted.write_rows(raw, mixed.table(200, seed=1))
    if change == "reader":
        made = promoted.dataset(read=lambda folder: promoted.read(folder))
    file.setattr("datasets.names", lambda: [promoted.NAME])
    file.setattr("datasets.load", lambda name: made)
    size = 60 if change == "part_rows" else 50
    assert predict_raw(promoted.NAME, raw, tmp_path / "out", store=trained[0], part_rows=size)["resumed_from"] is None


def test_a_logit_that_is_not_finite_names_its_row(
    trained: tuple[Path, dict[str, Artifact]], tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.predictor import Scorer

    def score(self: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = np.zeros((len(x), 2), np.float32)
        logits[11, 1] = np.nan
        return logits, logits

    monkeypatch.setattr(Scorer, "score", score)
    with pytest.raises(NonFiniteError) as caught:
        predict_raw(promoted.NAME, raw, tmp_path / "out", store=trained[0], part_rows=50)
    assert (caught.value.facts["file"], caught.value.facts["row"]) == ("night.parquet", 11)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"dataset": "ghost"}, UnknownNameError), ({"version": "v9"}, UnknownNameError),
     ({"part_rows": 0}, ParameterError),
     ({"out": "no/such/folder/out"}, ParameterError), ({"out": "."}, ParameterError), ({"store": "empty"}, StoreError)],
)  # fmt: skip
def test_a_request_that_can_not_work_is_refused(
    trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path, options: dict[str, Any],
    error: type[Exception],
) -> None:  # fmt: skip
    paths = {name: tmp_path / value for name, value in options.items() if name in ("out", "store")}
    given: dict[str, Any] = {"dataset": promoted.NAME, "raw": raw, "out": tmp_path / "out", "store": trained[0]}
    with pytest.raises(error):
        predict_raw(**{**given, **options, **paths})


def test_parts_and_batches_are_bounded() -> None:
    assert rows_of_a_part(promoted.dataset()) == module.MOST_PART_ROWS
    big = toy.dataset(features={"image": Feature("uint8", (2000, 2000, 3)), "label": mixed.FEATURES["label"]})
    assert rows_of_a_part(big) == 5
    assert [rows_of_a_batch(n) for n in (1, 12, 784, 3 << 20)] == [8192, 8192, 256, 1]


def test_the_command_needs_no_server(
    trained: tuple[Path, dict[str, Artifact]], raw: Path, tmp_path: Path, file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import json
    import runpy
    import sys

    out = tmp_path / "out.parquet"
    command = ["predict", promoted.NAME, "--raw", str(raw), "--out", str(out), "--store", str(trained[0])]
    for more, status in ((["--json"], 0), ([], 0), (["--version", "v9"], 2)):
        file.setattr(sys, "argv", [*command, *more])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("flows.predict", run_name="__main__", alter_sys=True)
        assert ended.value.code == status
        said = capsys.readouterr()
        if more == ["--json"]:
            assert json.loads(said.out.splitlines()[-1])["rows"] == mixed.ROWS
        elif not status:
            assert f"{mixed.ROWS} rows in" in said.out
        else:
            assert "there is no version 'v9'" in said.err


@pytest.mark.slow
def test_every_measure_of_its_benchmark_is_made(monkeypatch: pytest.MonkeyPatch, file: Any) -> None:
    file.undo()
    from tasks.benchmarks import predict as bench

    few, *_ = made = bench.run(1, scale=0.002)
    assert [measure.unit for measure in made] == ["rows/s", "s", "GB", "GB"]
    assert few.ratio is not None
    assert all(measure.value > 0 for measure in made[:3])
    assert made[2].goal == "< 1.5"
