from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from prefect.client.orchestration import get_client
from prefect.deployments.runner import RunnerDeployment

import datasets
from datasets.errors import ParameterError
from datasets.nightly import Nightly, Predictions
from datasets.schema import Dataset
from flows.predict import predict
from flows.serve import served
from tasks import predictions as module
from tasks.predictions import dated, prediction_options
from tasks.request import CHECKOUT

CLOCK = Predictions("/in/{date}.csv", "out-{date}.parquet", Nightly("0 5 * * *", "Pacific/Auckland"))


@pytest.fixture
def by_clock(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    made = replace(datasets.load("mnist"), predictions=CLOCK)
    monkeypatch.setattr(datasets, "names", lambda: ["mnist"])
    monkeypatch.setattr(datasets, "load", lambda name: made)
    return made


def test_every_dataset_file_has_a_deployment_without_a_clock() -> None:
    options = list(prediction_options())
    assert [option["name"] for option in options] == datasets.names()
    assert {option["schedule"] for option in options} == {None}
    assert options[0]["parameters"] == {"dataset": options[0]["name"]}


@pytest.mark.usefixtures("by_clock")
def test_a_dataset_files_own_clock_and_paths_are_the_deployments() -> None:
    (options,) = prediction_options()
    assert (options["schedule"].cron, options["schedule"].timezone) == ("0 5 * * *", "Pacific/Auckland")
    assert options["parameters"] == {"dataset": "mnist", "raw": CLOCK.raw, "out": CLOCK.out}


@pytest.mark.usefixtures("by_clock")
def test_the_day_is_that_of_the_schedules_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_scheduled", lambda: datetime(2026, 11, 29, 16, tzinfo=UTC))
    assert dated(CLOCK.raw, "mnist") == "/in/2026-11-30.csv"
    assert dated(CLOCK.out, "mnist") == str(CHECKOUT / "out-2026-11-30.parquet")
    assert dated("/plain", "mnist") == "/plain"


def test_without_a_clock_it_is_the_day_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_scheduled", lambda: datetime(2026, 11, 29, 23, 59, tzinfo=UTC))
    assert Path(dated("{date}", "mnist")).name == "2026-11-29"


@pytest.mark.parametrize("options", [{"raw": "", "out": "x"}, {"raw": "x", "out": None}])
def test_paths_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="is a path"):
        Predictions(**options)


@pytest.mark.usefixtures("by_clock")
def test_the_server_takes_the_deployments(prefect_server: str) -> None:
    made = {f"{one.flow_name}/{one.name}": one for one in served()}
    assert "predict/mnist" in made
    deployment = cast(RunnerDeployment, made["predict/mnist"])
    id_ = cast(Any, deployment.apply())
    with get_client(sync_client=True) as client:
        try:
            kept = client.read_deployment(id_)
        finally:
            client.delete_deployment(id_)
    assert kept.schedules[0].active
    assert kept.entrypoint == "flows.predict.predict"
    schema = cast(dict[str, Any], kept.parameter_openapi_schema)
    assert set(schema["properties"]) == {"dataset", "raw", "out", "version", "store"}


@pytest.mark.usefixtures("by_clock")
def test_the_flow_predicts_with_the_days_paths(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got: dict[str, Any] = {}
    monkeypatch.setattr(module, "_scheduled", lambda: datetime(2026, 11, 29, 16, tzinfo=UTC))
    monkeypatch.setattr(
        "flows.predict.predict_raw", lambda *args, **options: got.update(args=args, options=options) or {"rows": 3}
    )
    assert predict("mnist", CLOCK.raw, CLOCK.out, "v2", "s") == {"rows": 3}
    assert got == {
        "args": ("mnist", "/in/2026-11-30.csv", str(CHECKOUT / "out-2026-11-30.parquet"), "v2"),
        "options": {"store": "s"},
    }
