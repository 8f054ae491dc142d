from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import toy
from PIL import Image

from datasets.augment import Shift
from datasets.errors import ArtifactDamaged, PipelineError, PipelineStateError, SchemaError, StoreError
from datasets.schema import Feature, Rows
from tasks import ahead, resident, tiers
from tasks import feed as stage
from tasks.artifact import Artifact, Store
from tasks.autotune import IN_PROCESS, RESIDENT, Setting, Trial, worker_settings
from tasks.durable import read_json
from tasks.feed import (
    PLAN,
    PLOT,
    candidates,
    check_vouched,
    chosen_setting,
    columns,
    open_pipeline,
    plan_input,
)
from tasks.records import Shards
from tasks.request import Request
from tasks.shard_writer import write_shards
from tasks.tiers import open_rows
from tasks.training import train
from tasks.validate import validate_records


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    return toy.request_for(tmp_path_factory.mktemp("store"), made, augment=(Shift(1),))


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


def test_the_plan_names_what_was_measured_and_why_it_chose(request_: Request, inputs: Any) -> None:
    store = Store(request_.store)
    plan = read_json(store.path(inputs["plan"]) / PLAN)
    names = ("threads", "prefetch", "workers", "resident")
    settings = [Setting(**{name: row[name] for name in names}) for row in plan["measured"]]
    assert settings == [*IN_PROCESS, *worker_settings()]
    tried = [row for row in plan["measured"] if row["examples_per_second"] is not None]
    assert len(tried) >= len(IN_PROCESS)
    assert min(row["examples_per_second"] for row in tried) > 0
    assert all(row["why"].startswith("not tried: ") for row in plan["measured"] if row not in tried)
    least = min(row["training_seconds"] for row in tried)
    assert plan["chosen"]["training_seconds"] <= max(1.05 * least, least + 1)
    assert chosen_setting(store, inputs["plan"]) in settings
    assert str(chosen_setting(store, inputs["plan"])) in plan["chosen"]["why"]
    assert (plan["tier"], plan["steps"], plan["batch_size"]) == ("memory-mapped columns", 18, 16)
    assert store.facts(inputs["plan"]) == {"records": inputs["records"].digest}


def test_a_plot_of_the_settings_lies_beside_the_plan(request_: Request, inputs: Any) -> None:
    picture = Image.open(Store(request_.store).path(inputs["plan"]) / PLOT)
    assert picture.format == "PNG"
    assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 10


def test_a_measurement_that_came_out_another_way_chooses_another_setting(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for best in IN_PROCESS:

        def made_up(settings: Any, *parts: Any, best: Setting = best, **options: Any) -> list[Trial]:
            return [Trial(s, 1.0, 0.0, 10.0 if s == best else 20.0) for s in settings]

        monkeypatch.setattr(stage, "tune", made_up)
        plan = plan_input(toy.job(request_, "feed", "other"), inputs["records"], inputs["report"])
        assert chosen_setting(Store(request_.store), plan) == best


def test_a_split_stays_on_a_device_of_its_own_memory_only_without_augmentation(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(request_.store)
    plain = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, augment=())))
    assert RESIDENT not in candidates(store, plain, inputs["records"])
    monkeypatch.setattr(ahead, "depth_here", lambda: 2)
    assert RESIDENT in candidates(store, plain, inputs["records"])
    assert RESIDENT not in candidates(store, request_, inputs["records"])
    monkeypatch.setattr(resident, "MOST_BYTES", 150 * (72 + 4) - 1)
    assert RESIDENT not in candidates(store, plain, inputs["records"])


def test_batches_that_stay_on_the_device_are_the_same(request_: Request, inputs: Any) -> None:
    plain = replace(request_, dataset=replace(request_.dataset, recipe=replace(request_.dataset.recipe, augment=())))
    both = [open_pipeline(Store(request_.store), plain, inputs["records"], resident=r) for r in (False, True)]
    assert both[0].identity == both[1].identity
    for step in (0, 8, 17):
        host, device = both[0].batch(step), both[1].batch(step)
        assert all(isinstance(column, jax.Array) for column in device.values())
        for name in host:
            assert device[name].dtype == host[name].dtype
            np.testing.assert_array_equal(device[name], host[name])


def test_the_identity_does_not_depend_on_the_cut_into_shards(request_: Request, inputs: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "cut"]
    digests = []
    for folder, rows_per_shard in zip(folders, (256, 32), strict=True):
        made = write_shards(folder, "train", [toy.pictures()], request_.dataset.features,
                            rows_per_record=16, rows_per_shard=rows_per_shard)  # fmt: skip
        shards = Shards(folder, made, request_.dataset.features, 16)
        digests.append((len(made), open_rows(shards, folder / "columns").digest))
    assert digests[0][0] != digests[1][0]
    assert digests[0][1] == digests[1][1]
    pipeline = open_pipeline(Store(request_.store), request_, inputs["records"])
    assert pipeline.digest == columns(Store(request_.store), request_, inputs["records"], "train").digest


def test_a_split_above_the_allowance_is_read_from_its_shards_in_the_order_of_blocks(
    request_: Request, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(request_.store)
    before = open_pipeline(store, request_, inputs["records"])
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 150 * (72 + 4) - 1)
    after = open_pipeline(store, request_, inputs["records"])
    assert isinstance(after.source, Shards)
    assert after.order.block == after.source.rows_per_record == 256
    with pytest.raises(PipelineStateError, match="block"):
        after.restore(before.state(3))
    plan = plan_input(toy.job(request_, "feed", "large"), inputs["records"], inputs["report"])
    assert read_json(store.path(plan) / PLAN)["tier"] == "ArrayRecord shards"


def test_no_setting_changes_a_batch(request_: Request, inputs: Any) -> None:
    pipeline = open_pipeline(Store(request_.store), request_, inputs["records"])
    assert pipeline.order.size == toy.TRAIN
    runs = []
    for setting in (*IN_PROCESS, Setting(threads=3, prefetch=1)):
        with pipeline.iterate(0, 18, **setting.reading) as batches:
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
    features = {**request_.dataset.features, "image": Feature("uint8", (9, 8, 1), high=3)}
    broken = replace(request_, dataset=replace(request_.dataset, features=features))
    with pytest.raises(SchemaError, match="image") as caught:
        plan_input(toy.job(broken, "feed", "broken"), inputs["records"], inputs["report"])
    assert caught.value.facts["step"] == 0


def test_the_key_holds_the_machine_and_what_a_batch_is_made_of(request_: Request) -> None:
    recipe = request_.dataset.recipe

    def parts(**changes: Any) -> Any:
        changed = replace(request_.dataset, recipe=replace(recipe, **changes))
        return toy.key_parts(stage.feed, replace(request_, dataset=changed))

    assert parts(learning_rate=0.5, epochs=9, model="cnn") == parts()
    assert parts(batch_size=17) != parts()
    assert parts(augment=()) != parts()
    assert {"cores", "architecture", "processor"} == set(parts()["machine"])
