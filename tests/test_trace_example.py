from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy

from datasets import load
from datasets.errors import StoreError
from datasets.schema import Source
from flows.trace_example import trace_example
from tasks import request as requests
from tasks.convert import convert_raw
from tasks.fetch import fetch_raw, prepared
from tasks.fingerprint_memory import RememberedSources
from tasks.planning import Plan
from tasks.stage import key_of


def prepare(store: Path, dataset: str = "mnist", **parameters: Any) -> None:
    """The records of a dataset, with cache records as a run of the flow leaves them."""
    from tasks.cache import PLAIN_JSON
    from tasks.convert import convert
    from tasks.fetch import fetch

    plan, made = Plan(prepared(dataset, store=store, **parameters), sources=RememberedSources(store)), {}
    for stage, body, names in ((fetch, fetch_raw, ()), (convert, convert_raw, ("raw",))):
        inputs = {name: made[name] for name in names}
        key = key_of(stage.components(plan, inputs))
        artifact = body(toy.job(plan.request, stage.name, key), **inputs)
        made["raw"] = artifact
        record = {"metadata": {"serializer": PLAIN_JSON}, "result": json.dumps(artifact.to_json())}
        plan.records.mkdir(parents=True, exist_ok=True)
        (plan.records / key).write_text(json.dumps(record))


def test_the_question_needs_records_and_no_server(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="aren't in the store"):
        trace_example("mnist", step=3, slot=5, store=str(tmp_path))
    assert not any(tmp_path.iterdir())
    prepare(tmp_path)
    found = trace_example("mnist", step=3, slot=5, store=str(tmp_path))
    (example,) = found["examples"]
    back = trace_example("mnist", row=example["row"], file=example["file"], store=str(tmp_path))
    assert {"step": 3, "slot": 5, "epoch": 0} in back["seen"]
    assert len(back["seen"]) in (load("mnist").recipe.epochs - 1, load("mnist").recipe.epochs)
    other = trace_example("mnist", step=3, slot=5, batch_size=64, seed=9, store=str(tmp_path))
    assert (other["batch_size"], other["seed"]) == (64, 9)
    assert other["examples"] != found["examples"]


@pytest.mark.parametrize("by", ["source", "raw"])
def test_raw_files_that_nothing_pins_are_looked_at_as_a_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    raw = tmp_path / "raw"
    toy.write_raw(raw, toy.pictures())
    made = toy.dataset(Source(folder=str(raw) if by == "source" else None, pattern="**"))
    monkeypatch.setattr(requests.datasets, "load", lambda name: made)
    parameters: dict[str, Any] = {"raw": str(raw)} if by == "raw" else {}
    prepare(tmp_path / "store", "toy", **parameters)
    asked: dict[str, Any] = {"batch_size": 16, "store": str(tmp_path / "store"), **parameters}
    (example,) = trace_example("toy", step=3, slot=5, **asked)["examples"]
    back = trace_example("toy", row=example["row"], file=example["file"], **asked)
    assert {"step": 3, "slot": 5, "epoch": 0} in back["seen"]
    (raw / "more").write_bytes(b"")
    with pytest.raises(StoreError, match="raw files changed"):
        trace_example("toy", step=3, **asked)


def test_the_command_answers_with_json(tmp_path: Path) -> None:
    prepare(tmp_path)
    code = "import runpy, sys; sys.argv = ['x', 'mnist', '--step', '3', '--slot', '5', '--json', '--store', %r];"
    made = toy.run_python(code % str(tmp_path) + "runpy.run_module('flows.trace_example', run_name='__main__')")
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout.splitlines()[-1])
    assert found == trace_example("mnist", step=3, slot=5, store=str(tmp_path))
