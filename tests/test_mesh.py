"""One training on four devices: the same losses within rounding, one trace, and checkpoints for any number of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mesh_case import EVERY, STEPS, same_within_rounding

from datasets.errors import ParameterError
from tasks.fetch import prepared
from tasks.mesh import Mesh
from tasks.parallel import Parallel

HERE = Path(__file__).parent

# One process does it all, because each start of JAX costs seconds.
SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
import jax
import numpy as np
import pytest
import toy
from mesh_case import *
from datasets.errors import NonFiniteError
from tasks import training
from tasks.capsule import load_capsule
from tasks.step import TrainStep
from tasks.training import train

assert jax.device_count() == 4
store, said = Path(sys.argv[1]), {}
ONE, FOUR = Parallel(1), Parallel(4)
inputs = toy.prepare(request_for(store, ONE))

class Stopped(Exception): pass

def fit(parallel, key, about, stop=None):
    request = request_for(store, parallel)
    job, original = job_for(request, key, about), TrainStep.__call__
    def stopping(self, carry, batch):
        if int(carry.step) == stop:
            raise Stopped
        return original(self, carry, batch)
    TrainStep.__call__ = stopping
    try:
        artifact = train(job, **inputs)
    except Stopped:
        return None
    finally:
        TrainStep.__call__ = original
    made = {"losses": losses(request, artifact), "resumed_from": job.notes["resumed_from"], "digest": artifact.digest,
            "traces": {name: report["used"] for name, report in job.notes["traces"].items()},
            "meshes": Store(store).facts(artifact).get("meshes")}
    return made

shards = set()
place = training.Mesh.place
def watching(self, batch):
    placed = place(self, batch)
    shards.update((len(x.addressable_shards), len(x.addressable_shards[0].data))
                  for x in placed.values() if isinstance(x, jax.Array))
    return placed
training.Mesh.place = watching
said["one"] = fit(ONE, "one", "a")
assert not shards
said["four"] = fit(FOUR, "four", "b")
said["shards"] = sorted(shards)
fit(FOUR, "same", "c", stop=7)
said["four again"] = fit(FOUR, "same", "c")
fit(FOUR, "to-one-4", "d", stop=7)
said["four to one"] = fit(ONE, "to-one-1", "d")
said["after the end"] = fit(FOUR, "after-the-end", "a")
fit(FOUR, "ping-4", "f", stop=5)
fit(ONE, "ping-1", "f", stop=11)
said["there and back"] = fit(FOUR, "ping-4", "f")

overflowing = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
record = int(Order(toy.TRAIN, 16, seed=3).ids(4)[1][5])
overflowing[record, 1] = 3e38
columns = {"x": overflowing, "label": (np.arange(200) % 3).astype(np.int32)}
made = toy.dataset(read=toy.reader_of(columns), inputs="x", features={
    "x": toy.Feature("float32", (3,)), "label": toy.Feature("int32", classes=toy.CLASSES)})
request = replace(toy.request_for(store, made, checkpoint_every=1), parallel=FOUR)
records = toy.records_of(request, "bad")
report = toy.validate_records(toy.job(request, "validate", "bad"), records=records)
with pytest.raises(NonFiniteError) as caught:
    train(toy.job(request, "fit"), records, report, inputs["plan"])
capsule = load_capsule(Path(str(caught.value.facts["capsule"])))
said["firewall"] = {
    "step": caught.value.facts["step"], "rows": len(capsule.batch["x"]), "record": record in capsule.ids,
    "saved": max(int(p.name) for p in (store / "checkpoints/toy/fit-1").iterdir() if p.name.isdigit())}
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {
        **os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("store"))], env=environment, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_four_devices_train_as_one_within_rounding_and_one_trace(said: dict[str, Any]) -> None:
    assert len(said["one"]["losses"]) == STEPS + 2
    assert same_within_rounding(said["one"]["losses"], said["four"]["losses"])
    assert not same_within_rounding(said["one"]["losses"][1:], said["four"]["losses"][:-1])
    assert said["one"]["traces"] == said["four"]["traces"] == {"train": 1, "eval": 1}
    assert said["shards"] == [[4, 4]]  # four devices, four rows of sixteen each


def test_on_one_mesh_a_resumed_training_is_equal_to_the_last_bit(said: dict[str, Any]) -> None:
    assert said["four again"]["resumed_from"] == EVERY
    assert said["four again"]["digest"] == said["four"]["digest"]


@pytest.mark.parametrize(
    ("name", "step", "meshes"),
    [("four to one", 4, [[0, 1, 4], [4, 1, 1]]),
     ("there and back", 8, [[0, 1, 4], [4, 1, 1], [8, 1, 4]])],
)  # fmt: skip
def test_a_stopped_training_goes_on_with_another_number_of_devices(
    said: dict[str, Any], name: str, step: int, meshes: list[list[int]]
) -> None:
    assert said[name]["resumed_from"] == step
    assert same_within_rounding(said["one"]["losses"], said[name]["losses"])
    assert said[name]["traces"] == {"train": 1, "eval": 1}
    assert said[name]["meshes"] == meshes


def test_a_finished_training_is_not_gone_on_from(said: dict[str, Any]) -> None:
    assert said["after the end"]["resumed_from"] is None
    assert said["after the end"]["meshes"] is None
    assert said["after the end"]["digest"] == said["four"]["digest"]


def test_the_firewall_guards_all_devices(said: dict[str, Any]) -> None:
    assert said["firewall"] == {"step": 4, "rows": 16, "record": True, "saved": 4}


def test_more_devices_than_there_are_and_batches_that_do_not_divide_are_refused() -> None:
    for refusing in (Parallel(4096).check_devices, lambda: prepared("mnist", devices=4096, batch_size=4096)):
        with pytest.raises(ParameterError, match="aren't so many devices") as caught:
            refusing()
        assert "--xla_force_host_platform_device_count=4096" in str(caught.value.cure)
    with pytest.raises(ParameterError, match="shared out evenly"):
        Mesh(Parallel(3), 16)


def test_one_device_asks_nobody_and_places_nothing() -> None:
    mesh = Mesh(Parallel(), 16)
    batch: Any = {"x": None}
    assert mesh.place(batch) is batch
    assert mesh.shardings == {}
    assert mesh.agree(7, True, False) == (True, False)
    assert mesh.told("x") == "x"
