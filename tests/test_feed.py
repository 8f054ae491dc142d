from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from datasets.augment import Shift
from datasets.errors import ArtifactDamaged, PipelineError, SchemaError, StoreError
from datasets.schema import Feature, Rows
from tasks import feed as stage
from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.feed import (
    CANDIDATES,
    PLAN,
    Setting,
    check_vouched,
    chosen_setting,
    columns,
    measure,
    open_pipeline,
    plan_input,
)  # fmt: skip
from tasks.request import Request
from tasks.training import train
from tasks.validate import validate_records


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    return toy.request_for(tmp_path_factory.mktemp("store"), made, augment=(Shift(1),))


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


def test_the_plan_names_what_was_measured_and_chooses_the_fastest(request_: Request, inputs: Any) -> None:
    store = Store(request_.store)
    plan = read_json(store.path(inputs["plan"]) / PLAN)
    settings = [{name: row[name] for name in ("threads", "prefetch", "workers")} for row in plan["measured"]]
    assert settings == [asdict(setting) for setting in CANDIDATES]
    rates = [row["examples_per_second"] for row in plan["measured"]]
    assert min(rates) > 0
    assert plan["chosen"] == settings[int(np.argmax(rates))]
    assert chosen_setting(store, inputs["plan"]) == Setting(**plan["chosen"])
    assert store.facts(inputs["plan"]) == {"records": inputs["records"].digest}


def test_a_measurement_that_came_out_another_way_chooses_another_setting(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for best in CANDIDATES:
        monkeypatch.setattr(
            stage, "measure", lambda pipeline, request, setting, best=best: 2.0 if setting == best else 1
        )
        plan = plan_input(toy.job(request_, "feed", "other"), inputs["records"], inputs["report"])
        assert chosen_setting(Store(request_.store), plan) == best


def test_no_setting_changes_a_batch(request_: Request, inputs: Any) -> None:
    pipeline = open_pipeline(Store(request_.store), request_, inputs["records"])
    assert pipeline.order.size == toy.TRAIN
    runs = []
    for setting in (*CANDIDATES, Setting(threads=3, prefetch=1)):
        with pipeline.iterate(0, 18, **asdict(setting)) as batches:
            runs.append([{name: c.tobytes() for name, c in batch.items()} for batch in batches])
    assert len(runs[0]) == 18
    assert all(run == runs[0] for run in runs)


def test_batches_hold_the_records_that_the_order_names(request_: Request, inputs: Any) -> None:
    plain = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, augment=())))
    pipeline, raw = open_pipeline(Store(request_.store), plain, inputs["records"]), toy.pictures()
    _, ids = pipeline.order.ids(3)
    np.testing.assert_array_equal(pipeline.batch(3)["image"], raw["image"][ids])
    np.testing.assert_array_equal(pipeline.batch(3)["label"], raw["label"][ids])
    assert (pipeline.batch(3)["image"] != open_pipeline(Store(request_.store), request_, inputs["records"]).batch(3)[
        "image"]).any()  # fmt: skip


def test_records_that_validate_did_not_see_are_refused(request_: Request, inputs: Any, tmp_path: Path) -> None:
    store = Store(request_.store)
    check_vouched(store, inputs["records"], inputs["report"])
    smaller = replace(request_.dataset, splits={"train": Rows(0, 140), "test": Rows(150, 200)})
    other = toy.records_of(replace(request_, dataset=smaller), key="other-records")
    with pytest.raises(StoreError, match="not validated") as caught:
        plan_input(toy.job(request_, "feed", "refused"), other, inputs["report"])
    assert caught.value.facts == {"got": other.digest, "expected": inputs["records"].digest}
    with pytest.raises(StoreError, match="not validated"):
        train(toy.job(request_, "fit", "refused"), other, inputs["report"], inputs["plan"])
    assert not (request_.store / "plan" / "toy" / "refused").exists()
    assert not (request_.store / "checkpoints" / "toy" / "refused").exists()


def test_columns_are_decoded_again_when_they_are_gone_or_damaged(request_: Request, inputs: Any) -> None:
    store = Store(request_.store)
    folder = columns(store, request_, inputs["records"], "test").folder
    (folder / "image.npy").write_bytes(b"cut")
    again = columns(store, request_, inputs["records"], "test")
    np.testing.assert_array_equal(again.read(np.arange(50))["image"], toy.pictures()["image"][150:])


def test_a_damaged_shard_ends_the_stage(tmp_path: Path) -> None:
    request = toy.request_for(tmp_path, toy.dataset(read=toy.reader_of(toy.pictures())))
    records = toy.records_of(request)
    report = validate_records(toy.job(request, "validate"), records)
    (shard,) = Store(tmp_path).path(records).glob("test*")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ArtifactDamaged):
        plan_input(toy.job(request, "feed"), records, report)


def test_fewer_examples_than_a_batch_are_an_error(request_: Request, inputs: Any) -> None:
    recipe = replace(request_.dataset.recipe, batch_size=151)
    with pytest.raises(PipelineError) as caught:
        plan_input(
            toy.job(replace(request_, dataset=replace(request_.dataset, recipe=recipe)), "feed", "big"),
            inputs["records"], inputs["report"],
        )  # fmt: skip
    assert "150" in str(caught.value)
    assert "151" in str(caught.value)


def test_a_batch_that_breaks_the_features_is_not_measured(request_: Request, inputs: Any) -> None:
    pipeline = open_pipeline(Store(request_.store), request_, inputs["records"])
    features = {**request_.dataset.features, "image": Feature("uint8", (9, 8, 1), high=3)}
    with pytest.raises(SchemaError, match="image"):
        measure(pipeline, replace(request_, dataset=replace(request_.dataset, features=features)), Setting())


def test_the_key_holds_the_machine_and_what_a_batch_is_made_of(request_: Request) -> None:
    recipe = request_.dataset.recipe

    def parts(**changes: Any) -> Any:
        changed = replace(request_.dataset, recipe=replace(recipe, **changes))
        return toy.key_parts(stage.feed, replace(request_, dataset=changed))

    assert parts(learning_rate=0.5, epochs=9, model="cnn") == parts()
    assert parts(batch_size=17) != parts()
    assert parts(augment=()) != parts()
    assert {"cores", "architecture", "processor"} == set(parts()["machine"])
