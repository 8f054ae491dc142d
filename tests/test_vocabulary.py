from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import mixed
import numpy as np
import pytest

from datasets.errors import ParameterError, SchemaError
from datasets.schema import Feature
from datasets.vocabulary import OTHER, ClassIndex, Vocabulary

TEXT = Feature("uint8", (4,))


def learnt(transform: Any, feature: Feature, *columns: np.ndarray) -> dict[str, Any]:
    learner = transform.learner(feature)
    for column in columns:
        learner.add(column)
    return json.loads(json.dumps(learner.end()))


def test_values_are_in_their_order_after_the_place_of_all_others() -> None:
    values = learnt(Vocabulary(), TEXT, mixed.texts(["de", "at", "de"]), mixed.texts(["ée", "at"]))
    assert Vocabulary().gives(TEXT, values) == Feature("int32", classes=(OTHER, "at", "de", "ée"))
    index = Vocabulary().function(TEXT, values)(mixed.texts(["ée", "at", "fr", "d", ""]), np)
    assert index.dtype == np.int32
    assert index.tolist() == [3, 1, 0, 0, 0]


def test_rare_values_and_those_beyond_the_most_frequent_are_others() -> None:
    shop, feature = np.array([5, 5, 5, 9, 9, 2, 2, -1]), Feature("int64")
    assert learnt(Vocabulary(at_least=2), feature, shop)["known"] == [2, 5, 9]
    assert learnt(Vocabulary(most=2), feature, shop)["known"] == [2, 5]  # 2 and 9 occur equally often
    assert learnt(Vocabulary(most=2), feature, shop[::-1])["known"] == [2, 5]
    assert learnt(Vocabulary(at_least=4), feature, shop)["known"] == []


@pytest.mark.parametrize("known", [[], ["at", "de", "ée"]])
@pytest.mark.parametrize("text", [True, False])
def test_numpy_and_jax_agree(known: list[str], text: bool) -> None:
    feature = TEXT if text else Feature("int32")
    column = mixed.texts(["de", "at", "fr", "ée", "zz", "a"]) if text else np.array([3, 1, 7, 2, -9, 0], np.int32)
    seen = (mixed.texts(known) if known else column[:0]) if text else np.arange(1, 1 + len(known), dtype=np.int32)
    function = Vocabulary().function(feature, learnt(Vocabulary(), feature, seen))
    ours, theirs = function(column, np), jax.jit(lambda x: function(x, jnp))(column)
    assert ours.any() == bool(known)
    np.testing.assert_array_equal(ours, theirs)


def test_classes_are_the_values_of_the_train_split_and_no_other() -> None:
    for feature, column, names in (
        (Feature("int64"), np.array([7, 42, 7, 3]), ("3", "7", "42")),
        (TEXT, mixed.texts(["cat", "dog", "cat", "ant"]), ("ant", "cat", "dog")),
    ):
        values = learnt(ClassIndex(), feature, column)
        assert ClassIndex().gives(feature, values).classes == names
        function = ClassIndex().function(feature, values)
        assert function(column, np).tolist() == [1, 2, 1, 0]
    with pytest.raises(SchemaError, match="isn't a class of the train split") as caught:
        function(mixed.texts(["cat", "eel"]), np)
    assert caught.value.facts["got"] == "'eel'"


@pytest.mark.parametrize("feature", [Feature("float32"), Feature("int32", (2,)), Feature("uint8", (2, 2))])
def test_only_whole_numbers_and_text_are_looked_up(feature: Feature) -> None:
    with pytest.raises(SchemaError, match="can't be looked up"):
        Vocabulary().learner(feature)


def test_numbers_of_rows_are_no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.vocabulary.MOST_DISTINCT", 10)
    learner = Vocabulary().learner(Feature("int32"))
    with pytest.raises(SchemaError, match="too many different values"):
        learner.add(np.arange(11))


@pytest.mark.parametrize("options", [{"most": 0}, {"at_least": 0}, {"most": 1.5}])
def test_its_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Vocabulary(**options)


def test_truth_values_are_looked_up_too() -> None:
    feature, column = Feature("bool"), np.array([True, True])
    values = learnt(Vocabulary(), feature, column)
    function = Vocabulary().function(feature, values)
    assert function(np.array([True, False]), np).tolist() == [1, 0]
