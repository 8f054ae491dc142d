"""prefect.yaml and its like for other work pools say what the dataset files say, and Prefect takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import prefect
import pytest
import toy
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
from prefect.utilities.schema_tools.validation import ValidationError, validate

import datasets
from tasks.backlog import MODELS, STORE

KINDS = ("process", "docker", "kubernetes")
FILES = ("prefect.yaml", "deploy/docker.yaml", "deploy/kubernetes.yaml")
TRAIN, PREDICT = "flows.train.train", "flows.predict.predict"
BUNDLED = ("mnist", "mnist_full", "fashion_mnist", "fraud")


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((toy.ROOT / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_every_dataset_is_deployed_on_its_own_clock(name: str) -> None:
    made = {(one["entrypoint"], one["name"]): one for one in read(name)["deployments"]}
    trained, predicted = ([(flow, dataset) for dataset in BUNDLED] for flow in (TRAIN, PREDICT))
    assert list(made) == [*trained, *predicted, ("flows.promote.promote", MODELS), ("flows.clean.clean", STORE)]
    for dataset in BUNDLED:
        known = datasets.load(dataset)
        predictions = known.predictions and known.predictions.nightly
        for flow, when in ((TRAIN, known.nightly), (PREDICT, predictions)):
            clock = [] if when is None else [{"cron": when.cron, "timezone": when.timezone}]
            assert made[flow, dataset]["schedules"] == clock
            assert made[flow, dataset]["parameters"] == {"dataset": dataset}
    for one in made.values():
        assert one["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
        assert one["work_pool"] == read(name)["definitions"]["work_pool"]


def test_the_pools_are_three() -> None:
    assert [read(name)["definitions"]["work_pool"]["name"] for name in FILES] == [
        "gristmill", "gristmill-docker", "gristmill-kubernetes",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), list(zip(FILES, KINDS, strict=True)), ids=KINDS)
def test_the_pools_know_every_variable_of_a_job(name: str, kind: str) -> None:
    template = {type_: one for package in shipped().values() for type_, one in package.items()}[kind]
    schema = template["default_base_job_configuration"]["variables"]
    given = read(name)["definitions"]["work_pool"]["job_variables"]
    assert set(given) <= set(schema["properties"])
    validate(given, schema, raise_on_error=True, ignore_required=True)


def test_a_pool_is_refused_a_variable_of_another_type() -> None:
    schema = shipped()["prefect-docker"]["docker"]["default_base_job_configuration"]["variables"]
    with pytest.raises(ValidationError):
        validate({"volumes": "gristmill-store"}, schema, raise_on_error=True, ignore_required=True)


def shipped() -> dict[str, Any]:
    """What Prefect's server knows of workers, as `prefect work-pool create` reads it."""
    views = Path(prefect.__file__).parent / "server" / "api" / "collections_data" / "views"
    return json.loads((views / "aggregate-worker-metadata.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), list(zip(FILES[1:], KINDS[1:], strict=True)), ids=KINDS[1:])
def test_a_server_takes_the_deployments_of_a_pool(prefect_server: str, name: str, kind: str) -> None:
    environment = {
        **os.environ, "PREFECT_CLI_PROMPT": "false", "GRISTMILL_IMAGE": "registry.example.org/gristmill:1",
    }  # fmt: skip
    pool = read(name)["definitions"]["work_pool"]["name"]
    for arguments in (("work-pool", "create", pool, "--type", kind), ("deploy", "--all", "--prefect-file", name)):
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments], cwd=toy.ROOT, env=environment, text=True,
            timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    with get_client(sync_client=True) as client:
        of_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
        made = client.read_deployments(work_pool_filter=of_pool)
        assert len(made) == len(read(name)["deployments"])
        for one in made:
            assert one.job_variables["env"]["PREFECT_API_URL"] == os.environ["PREFECT_API_URL"]
            assert one.pull_steps in ([], None)
            client.delete_deployment(one.id)
        client.delete_work_pool(pool)


@pytest.mark.slow
def test_a_worker_of_a_process_pool_runs_what_was_deployed(prefect_server: str, tmp_path: Path) -> None:
    environment = {
        **os.environ, "GRISTMILL_CHECKOUT": str(toy.ROOT), "GRISTMILL_STORE": str(tmp_path / "store"),
        "PREFECT_CLI_PROMPT": "false",
    }  # fmt: skip

    def prefect(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments], cwd=toy.ROOT, env=environment, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="gristmill", type="process"))
        prefect("--no-prompt", "deploy", "--all")
        deployment = client.read_deployment_by_name("train/mnist")
        assert [str(one.schedule.cron) for one in deployment.schedules] == ["0 2 * * *"]  # type: ignore[union-attr]
        given = {"dataset": "mnist", "model": "mlp", "epochs": 1}
        run = client.create_flow_run_from_deployment(deployment.id, parameters=given)
        log = prefect("worker", "start", "--pool", "gristmill", "--run-once", "--type", "process")
        state = client.read_flow_run(run.id).state
        assert state is not None, log
        assert state.is_completed(), (state, log)
    assert (tmp_path / "store" / "models" / "mnist" / "champion.json").is_file()
