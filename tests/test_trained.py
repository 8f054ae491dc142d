from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mixed
import numpy as np
import promoted
import pytest
import toy

from datasets.errors import ArtifactDamaged, CheckpointMismatch, StoreError, UnknownNameError
from datasets.schema import Feature
from tasks.artifact import Store
from tasks.registry import Registry
from tasks.trained import check_inputs, load_version
from tasks.weights import WEIGHTS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("store")
    for seed in (3, 4):
        promoted.promote(made, seed=seed)
    return made


@pytest.fixture
def damaged(store: Path) -> Iterator[None]:
    path = store / "models" / promoted.NAME / "v1" / WEIGHTS
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    yield
    path.write_bytes(before)


def test_the_champion_is_taken_unless_a_version_is_named(store: Path) -> None:
    made = load_version(Store(store), promoted.NAME)
    assert made.version == "v2"
    assert load_version(Store(store), promoted.NAME, "v1").version == "v1"
    assert load_version(Store(store), promoted.NAME, "previous").version == "v1"
    champion = Registry(Store(store), promoted.NAME).champion()
    assert champion is not None
    assert (made.artifact, made.weights, made.classes) == (champion.model, champion.weights, ("good", "bad"))


def test_it_knows_the_way_from_a_record_to_what_it_sees(store: Path) -> None:
    made = load_version(Store(store), promoted.NAME)
    assert list(made.takes) == ["amount", "three", "country", "shop"]
    assert made.sees.shape == (13,)
    columns = {name: column for name, column in mixed.table(5).items() if name != "label"}
    out = made.to_inputs.apply(columns)
    assert set(out) == {"inputs"}
    assert np.asarray(made.model(out["inputs"])).shape == (5, 2)


def test_a_model_without_transforms_sees_records_as_they_are(tmp_path: Path) -> None:
    request = toy.request_for(tmp_path, toy.dataset(toy.write_raw(tmp_path / "raw", toy.pictures())),
                              tmp_path / "raw", epochs=1)  # fmt: skip
    weights = mixed.untrained(request, "fit-1")
    registry = Registry(Store(tmp_path), "toy")
    with registry.lock():
        registry.crown(registry.add(weights, {}))
    made = load_version(Store(tmp_path), "toy")
    feature = request.dataset.features["image"]
    assert made.takes == {"image": feature}
    assert made.sees == feature
    image = toy.pictures(3)["image"]
    assert made.to_inputs.apply({"image": image})["image"] is image


@pytest.mark.usefixtures("damaged")
def test_a_damaged_version_is_refused(store: Path) -> None:
    with pytest.raises(ArtifactDamaged, match="edited"):
        load_version(Store(store), promoted.NAME, "v1")
    assert load_version(Store(store), promoted.NAME).version == "v2"


def test_what_is_not_there_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="version 'v7'"):
        load_version(Store(store), promoted.NAME, "v7")
    with pytest.raises(StoreError, match="no model yet"):
        load_version(Store(tmp_path), promoted.NAME)


def test_a_dataset_file_that_changed_since_is_a_mismatch(store: Path) -> None:
    made = load_version(Store(store), promoted.NAME)
    check_inputs(made, mixed.dataset())
    other = mixed.dataset(features={**mixed.FEATURES, "three": Feature("float64", (3,))})
    with pytest.raises(CheckpointMismatch, match="another feature") as caught:
        check_inputs(made, other)
    assert caught.value.facts["field"] == "three"
