from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import mixed
import numpy as np
import pytest

from datasets.errors import GristmillError, ParameterError, SchemaError
from datasets.schema import ByHash, Dataset, Feature
from datasets.transforms import (
    ClassIndex,
    Impute,
    OneHot,
    SideBySide,
    Standardise,
    Vocabulary,
    inputs_as_one,
    inputs_of,
)


def learnt(transform: Any, feature: Feature, *columns: np.ndarray) -> dict[str, Any]:
    learner, values = transform.learner(feature), None
    for _ in range(3):
        for column in columns:
            learner.add(column)
        if (values := learner.end()) is not None:
            return json.loads(json.dumps(values, allow_nan=False))
    raise AssertionError("it never ends")


def both(function: Callable[..., Any], column: np.ndarray) -> np.ndarray:
    """The result of NumPy, which JAX's must equal to the last bit."""
    ours = function(column, np)
    theirs = np.asarray(jax.jit(lambda x: function(x, jnp))(column))
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()
    return ours


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_standardised_columns_have_mean_0_and_deviation_1(dtype: str) -> None:
    x = np.random.default_rng(0).uniform(0, 200, (1000, 3)).astype(dtype)
    feature = Feature(dtype, (3,))
    values = learnt(Standardise(), feature, x[:300], x[300:])
    made = both(Standardise().function(feature, values), x)
    assert Standardise().gives(feature, values) == Feature("float32", (3,))
    np.testing.assert_allclose(made.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(axis=0), 1, atol=1e-5)


def test_pictures_have_statistics_of_each_channel() -> None:
    x = np.random.default_rng(0).integers(0, 200, (50, 4, 5, 3)).astype(np.uint8) // np.array([1, 2, 4], np.uint8)
    feature = Feature("uint8", (4, 5, 3))
    values = learnt(Standardise(), feature, x)
    np.testing.assert_allclose(values["mean"], x.mean(axis=(0, 1, 2)), rtol=1e-6)
    assert both(Standardise().function(feature, values), x).shape == x.shape


def test_a_constant_column_becomes_0_whatever_comes_later() -> None:
    feature = Feature("float32", (2,))
    values = learnt(Standardise(), feature, np.array([[1, 5], [2, 5]], np.float32))
    assert values["constant"] == [1]
    made = Standardise().function(feature, values)(np.array([[1, 5], [3, 1e30]], np.float32), np)
    np.testing.assert_array_equal(made, [[-1, 0], [3, 0]])


def test_a_deviation_too_small_for_float32_counts_as_constant() -> None:
    x = np.array([[0.0], [1e-40]], np.float32)
    values = learnt(Standardise(), Feature("float32", (1,)), x)
    assert (values["scale"], values["constant"]) == ([0.0], [0])


def test_missing_values_become_the_median_of_the_others() -> None:
    feature = Feature("float32", (2,))
    x = np.array([[-1, 3], [2, -1], [9, -1], [4, 8]], np.float32)
    values = learnt(Impute(missing=-1), feature, x[:1], x[1:])
    assert values == {"median": [4.0, 3.0]}
    np.testing.assert_array_equal(both(Impute(-1).function(feature, values), x), [[4, 3], [2, 3], [9, 3], [4, 8]])


def test_whole_numbers_stay_whole_numbers_of_32_bits() -> None:
    feature = Feature("int64")
    x = np.array([-1, 30, 10, -1, 20])
    values = learnt(Impute(missing=-1), feature, x)
    assert Impute(-1).gives(feature, values) == Feature("int32")
    made = Impute(-1).function(feature, values)(x, np)
    assert made.dtype == np.int32
    assert made.tolist() == [20, 30, 10, 20, 20]


def test_where_all_is_missing_there_is_no_median() -> None:
    learner = Impute(missing=0).learner(Feature("float32"))
    learner.add(np.zeros(5, np.float32))
    with pytest.raises(SchemaError, match="every value of the train split is missing"):
        learner.end()


def test_an_index_gets_a_place_a_class() -> None:
    feature = Feature("int32", classes=("a", "b", "c"))
    assert OneHot().learner(feature) is None
    assert OneHot().gives(feature, {}) == Feature("float32", (3,), 0, 1)
    np.testing.assert_array_equal(both(OneHot().function(feature, {}), np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])
    with pytest.raises(SchemaError, match="index with classes"):
        OneHot().learner(Feature("int32"))


def test_columns_lie_side_by_side_in_float32() -> None:
    made = SideBySide("b", "a")
    assert made.gives([Feature("uint8"), Feature("float32", (2,))]) == Feature("float32", (3,))
    out = made.function()([np.array([1, 2], np.uint8), np.array([[3, 4], [5, 6]], np.float32)], np)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [[1, 3, 4], [2, 5, 6]])
    with pytest.raises(SchemaError, match="side by side"):
        SideBySide("picture").gives([Feature("uint8", (4, 4, 1))])


def transforms(**changes: Any) -> dict[str, Any]:
    return {**mixed.TRANSFORMS, **changes}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"transforms": transforms(nothing=Standardise())}, SchemaError, "isn't declared"),
        ({"transforms": transforms(amount=Standardise)}, ParameterError, "no transform"),
        ({"transforms": transforms(amount=(Standardise(), 3))}, ParameterError, "no transform"),
        ({"transforms": transforms(amount=ClassIndex())}, SchemaError, "for the label"),
        ({"transforms": transforms(label=Vocabulary())}, SchemaError, "for the label"),
        ({"transforms": transforms(inputs=SideBySide("amount", "ghost"))}, SchemaError, "isn't declared"),
        ({"transforms": transforms(three=SideBySide("amount"), inputs=SideBySide("shop"))}, SchemaError, "new feature"),
        ({"transforms": transforms(inputs=SideBySide())}, SchemaError, "new feature"),
        ({"transforms": transforms(inputs=SideBySide("amount", "label"))}, SchemaError, "can't be an input"),
        ({"transforms": transforms(more=SideBySide("amount"))}, SchemaError, "twice"),
        ({"splits": ByHash("shop", {"train": 0.5, "test": 0.5})}, SchemaError, "decides splits"),
        ({"transforms": {}}, SchemaError, "'inputs' isn't declared"),
    ],
)
def test_a_dataset_file_with_transforms_that_can_not_be_is_refused(
    changes: dict[str, Any], error: type[GristmillError], says: str
) -> None:
    with pytest.raises(error, match=says):
        mixed.dataset(**changes)


def test_a_label_may_get_its_classes_from_the_train_split() -> None:
    features = {**mixed.FEATURES, "label": Feature("int32")}
    with pytest.raises(SchemaError, match="no classes"):
        mixed.dataset(features=features)
    made = mixed.dataset(features=features, transforms=transforms(label=ClassIndex()))
    assert isinstance(made, Dataset)
    assert replace(made, about="again").transforms == made.transforms


def test_inputs_are_compared_by_all_that_the_model_sees() -> None:
    made = mixed.dataset()
    assert inputs_of(made) == ("amount", "three", "country", "shop")
    columns = mixed.table(3)
    joined = inputs_as_one(columns, inputs_of(made))
    assert joined.shape == (3, 4 + 12 + 4 + 8)
    other = {**columns, "shop": columns["shop"] + np.array([0, 1, 0])}
    assert (inputs_as_one(other, inputs_of(made)) != joined).any(axis=1).tolist() == [False, True, False]
    assert inputs_as_one(columns, ("three",)) is columns["three"]
