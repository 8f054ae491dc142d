"""prefect.yaml and its like for other work pools say what the dataset files say, and Prefect takes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate

import datasets
from tasks.backlog import MODELS, STORE

FILES = ("prefect.yaml", "deploy/docker.yaml", "deploy/kubernetes.yaml")
BUNDLED = ("mnist", "mnist_full", "fashion_mnist", "fraud")


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((toy.ROOT / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_every_dataset_is_deployed_on_its_own_clock(name: str) -> None:
    made = {one["name"]: one for one in read(name)["deployments"]}
    assert set(made) == {*BUNDLED, STORE, MODELS}
    for dataset in BUNDLED:
        nightly = datasets.load(dataset).nightly
        clock = [] if nightly is None else [{"cron": nightly.cron, "timezone": nightly.timezone}]
        assert made[dataset]["schedules"] == clock
        assert made[dataset]["parameters"] == {"dataset": dataset}
        assert made[dataset]["entrypoint"] == "flows.train.train"
    assert made[STORE]["entrypoint"] == "flows.clean.clean"
    assert made[MODELS]["entrypoint"] == "flows.promote.promote"
    for one in made.values():
        assert one["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
        assert one["work_pool"] == read(name)["definitions"]["work_pool"]


def test_the_pools_are_three() -> None:
    assert [read(name)["definitions"]["work_pool"]["name"] for name in FILES] == [
        "gristmill", "gristmill-docker", "gristmill-kubernetes",
    ]  # fmt: skip


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
