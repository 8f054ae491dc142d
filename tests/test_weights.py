from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import toy
from flax import nnx
from safetensors.numpy import load_file, save_file

from datasets.errors import CheckpointMismatch, ParameterError
from datasets.schema import Dataset, Feature, Recipe
from datasets.transforms import Standardise
from tasks import weights as module
from tasks.durable import read_json, write_json
from tasks.fitted import Fitted, Step, write_fitted
from tasks.weights import MODEL, WEIGHTS, build_model, load_model, save_weights


def dataset(model: str = "cnn", **changes: Any) -> Dataset:
    return toy.dataset(recipe=Recipe(model=model), **changes)


def trained(made: Dataset, seed: int = 0) -> nnx.Module:
    """A model whose every array, BatchNorm statistics too, is another than at its start."""
    feature = made.features[made.inputs]
    classes = len(made.features[made.label].classes)
    model = build_model(made.recipe.model, feature, classes, dropout=0.5, seed=seed)
    random = np.random.default_rng(seed)
    state = nnx.state(model, module.LEARNED)
    nnx.update(model, jax.tree.map(lambda x: x + random.uniform(0.01, 0.1, x.shape).astype(np.float32), state))
    model.eval()
    return model


@nnx.jit
def logits(model: Any, x: Any) -> jax.Array:
    """Of one program a structure: called bare, a model compiles each of its operations by itself."""
    return model(x)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_weights(tmp_path, trained(dataset()), dataset())
    return tmp_path


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_model_comes_back_to_the_last_bit(tmp_path: Path, name: str) -> None:
    model = trained(dataset(name))
    save_weights(tmp_path, model, dataset(name))
    loaded, card = load_model(tmp_path)
    x = toy.pictures(16)["image"]
    np.testing.assert_array_equal(np.asarray(logits(model, x)), np.asarray(logits(loaded, x)))
    assert card == {
        "model": name, "inputs": "image", "label": "label", "classes": list(toy.CLASSES),
        "feature": {"dtype": "uint8", "shape": [9, 8, 1], "low": None, "high": None, "classes": [], "of": ""},
        "precision": "float32",
    }  # fmt: skip


def test_it_comes_back_in_eval_mode(saved: Path) -> None:
    loaded: Any = load_model(saved)[0]
    x = toy.pictures(16)["image"]
    np.testing.assert_array_equal(
        np.asarray(logits(loaded, x))[:4], np.asarray(logits(loaded, x[:4]))
    )  # a batch's own statistics differ


def test_the_bounds_that_scale_the_inputs_come_back(tmp_path: Path) -> None:
    features = {**dataset().features, "image": Feature("uint8", (9, 8, 1), low=0, high=180)}
    made = dataset("mlp", features=features)
    model: Any = trained(made)
    save_weights(tmp_path, model, made)
    loaded: Any = load_model(tmp_path)[0]
    x = toy.pictures(4)["image"]
    np.testing.assert_array_equal(np.asarray(logits(model, x)), np.asarray(logits(loaded, x)))


def test_equal_weights_are_equal_bytes(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    again, other = tmp_path_factory.mktemp("again"), tmp_path_factory.mktemp("other")
    save_weights(again, trained(dataset()), dataset())
    save_weights(other, trained(dataset(), seed=1), dataset())
    assert toy.files_below(again) == toy.files_below(saved)
    assert (other / WEIGHTS).read_bytes() != (saved / WEIGHTS).read_bytes()


def test_parameters_and_batch_statistics_are_kept_and_nothing_else(saved: Path) -> None:
    names = set(load_file(saved / WEIGHTS))
    assert {"head.kernel", "head.bias"} <= names
    assert any(name.endswith("mean") for name in names)
    assert not [name for name in names if "rng" in name or "dropout" in name]


def test_every_array_that_differs_is_named(saved: Path) -> None:
    arrays = load_file(saved / WEIGHTS)
    arrays["head.kernel"] = arrays["head.kernel"][:, :2].copy()
    arrays["head.bias"] = arrays["head.bias"].astype(np.float16)
    arrays["stranger"] = np.zeros(2, np.float32)
    del arrays["hidden.bias"]
    save_file(arrays, saved / WEIGHTS)
    with pytest.raises(CheckpointMismatch) as caught:
        load_model(saved)
    lines = str(caught.value.facts["differences"]).split("; ")
    assert lines == [
        "head.bias: stored float16[3], wanted float32[3]",
        "head.kernel: stored float32[128, 2], wanted float32[128, 3]",
        "hidden.bias: stored nothing, wanted float32[128]",
        "stranger: stored float32[2], wanted nothing",
    ]


@pytest.mark.parametrize("change", [{"model": "no_such_model"}, {"feature": {"dtype": "uint8", "shape": [2, 2, 1]}}])
def test_a_model_that_can_not_be_built_any_more_is_a_mismatch(saved: Path, change: dict[str, Any]) -> None:
    card = read_json(saved / MODEL)
    write_json(
        saved / MODEL, {**card, **{k: {**card[k], **v} if isinstance(v, dict) else v for k, v in change.items()}}
    )
    with pytest.raises(CheckpointMismatch, match="can't build") as caught:
        load_model(saved)
    assert caught.value.facts["model"] == change.get("model", "cnn")
    assert caught.value.cure


def test_the_seed_decides_the_first_weights() -> None:
    def kernel(seed: int) -> np.ndarray:
        model: Any = build_model("mlp", dataset().features["image"], 3, dropout=0.0, seed=seed)
        return np.asarray(model.head.kernel[...])

    np.testing.assert_array_equal(kernel(5), kernel(5))
    assert (kernel(5) != kernel(6)).any()


def test_saving_changes_nothing_of_the_model(tmp_path: Path) -> None:
    model: Any = trained(dataset())
    x = toy.pictures(4)["image"]
    before = np.asarray(logits(model, x))
    save_weights(tmp_path, model, replace(dataset(), about="other"))
    np.testing.assert_array_equal(before, np.asarray(logits(model, x)))


def test_the_precision_comes_back(tmp_path: Path) -> None:
    made = replace(dataset("mlp"), recipe=replace(dataset("mlp").recipe, precision="bfloat16"))
    feature = made.features["image"]
    model: Any = build_model("mlp", feature, 3, dropout=0.0, seed=0, precision="bfloat16")
    model.eval()
    save_weights(tmp_path, model, made)
    loaded, card = load_model(tmp_path)
    x = toy.pictures(16)["image"]
    assert card["precision"] == "bfloat16"
    np.testing.assert_array_equal(np.asarray(logits(model, x)), np.asarray(logits(loaded, x)))
    single: Any = build_model("mlp", feature, 3, dropout=0.0, seed=0)
    single.eval()
    assert not np.array_equal(np.asarray(single(x)), np.asarray(logits(model, x)))
    np.testing.assert_allclose(np.asarray(single(x)), np.asarray(logits(model, x)), atol=0.05)


def test_a_model_that_knows_no_other_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.models.mlp.build", lambda feature, classes, *, dropout, rngs: None)
    with pytest.raises(ParameterError, match="computes in float32 only"):
        build_model("mlp", toy.dataset().features["image"], 3, dropout=0.0, seed=0, precision="bfloat16")


def test_a_number_is_told_in_the_unit_of_its_records(tmp_path: Path) -> None:
    columns = {"x": np.array([[1.0], [2.0], [3.0]], np.float32), "label": np.array([500.0, 700.0, 900.0], np.float32)}
    features = {"x": Feature("float32", (1,)), "label": Feature("float32")}
    known = toy.dataset(features=features, inputs="x", transforms={"label": Standardise()})
    values = {"mean": [700.0], "scale": [0.01], "std": [100.0], "constant": []}
    step = Step("label", Standardise(), values, features["label"])
    model: Any = build_model("mlp", features["x"], 0, dropout=0.0, seed=0)
    assert model(columns["x"]).shape == (3, 1)
    save_weights(tmp_path, model, known)
    plain: Any = load_model(tmp_path)[0]
    write_fitted(tmp_path, Fitted(features, (step,)))
    scaled: Any = load_model(tmp_path)[0]
    np.testing.assert_allclose(scaled(columns["x"]), plain(columns["x"]) * 100 + 700, rtol=1e-6)
