from __future__ import annotations

import json
import pickle
from pathlib import Path

import mixed
import numpy as np
import pytest
from mixed import InMemory

from datasets.errors import ArtifactDamaged
from datasets.schema import Feature
from datasets.transforms import ClassIndex
from tasks.fitted import TRANSFORMS, Fitted, Transformed, read_fitted, write_fitted
from tasks.transform import learned


@pytest.fixture(scope="module")
def rows() -> InMemory:
    return InMemory(mixed.table())


@pytest.fixture(scope="module")
def fitted(rows: InMemory) -> Fitted:
    return learned(mixed.dataset(), rows)


def test_features_are_those_that_the_model_sees(fitted: Fitted) -> None:
    assert fitted.takes == mixed.FEATURES
    assert fitted.gives == {
        "label": mixed.FEATURES["label"], "inputs": Feature("float32", (1 + 3 + 5 + 4,)),
    }  # fmt: skip
    made = fitted.dataset(mixed.dataset())
    assert (made.features, made.transforms, made.inputs) == (fitted.gives, {}, "inputs")


def test_values_are_those_of_hand_made_code(fitted: Fitted, rows: InMemory) -> None:
    columns, made = rows.columns, fitted.apply(rows.columns)
    assert set(made) == {"label", "inputs"}
    amount = columns["amount"].copy()
    known = np.sort(amount[amount != -1])
    amount[amount == -1] = known[(len(known) - 1) // 2]
    expected = (amount - amount.mean()) / amount.std()
    np.testing.assert_allclose(made["inputs"][:, 0], expected, atol=1e-5)
    np.testing.assert_array_equal(made["inputs"][:, 2], 0)
    np.testing.assert_array_equal(made["inputs"][:, 4:9].sum(axis=1), 1)
    np.testing.assert_array_equal(made["inputs"][:, 5] == 1, (columns["country"] == mixed.texts(["at"])).all(axis=1))
    assert made["inputs"][:, 9].any()  # four shops have three places: one is "(other)"


def test_json_leads_back_to_the_same_values(fitted: Fitted, rows: InMemory, tmp_path: Path) -> None:
    write_fitted(tmp_path, fitted)
    again = read_fitted(tmp_path)
    assert again is not None
    assert again.digest == fitted.digest
    for other in (again, pickle.loads(pickle.dumps(fitted))):
        for name, column in other.apply(rows.columns).items():
            assert column.tobytes() == fitted.apply(rows.columns)[name].tobytes()


def test_nothing_is_written_and_read_where_there_are_none(tmp_path: Path) -> None:
    write_fitted(tmp_path, None)
    assert not list(tmp_path.iterdir())
    assert read_fitted(tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [('"format": 1', '"format": 9'), ("datasets.transforms:Standardise", "os:system"),
     ("datasets.transforms:Standardise", "datasets.transforms:Gone"), ('"steps"', '"stops"'), ("{", "[")],
)  # fmt: skip
def test_a_damaged_file_is_named(fitted: Fitted, tmp_path: Path, old: str, new: str) -> None:
    write_fitted(tmp_path, fitted)
    path = tmp_path / TRANSFORMS
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ArtifactDamaged):
        read_fitted(tmp_path)


def test_rows_are_read_as_the_model_sees_them(fitted: Fitted, rows: InMemory) -> None:
    seen = Transformed(rows, fitted)
    assert (len(seen), seen.features) == (mixed.ROWS, fitted.gives)
    ids = np.array([7, 3, 7])
    np.testing.assert_array_equal(seen.read(ids)["inputs"], fitted.apply(rows.columns)["inputs"][ids])
    other = Transformed(rows, Fitted(mixed.FEATURES))
    assert other.read(ids).keys() == mixed.FEATURES.keys()
    assert len({seen.digest, other.digest, rows.digest}) == 3


def test_no_label_is_needed_to_make_inputs(rows: InMemory) -> None:
    made = mixed.dataset(
        features={**mixed.FEATURES, "label": Feature("int32")},
        transforms={**mixed.TRANSFORMS, "label": ClassIndex()},
    )
    fitted = learned(made, rows)
    assert fitted.gives["label"].classes == ("0", "1")
    inputs = {name: column for name, column in rows.columns.items() if name != "label"}
    np.testing.assert_array_equal(fitted.apply(inputs)["inputs"], fitted.apply(rows.columns)["inputs"])


def test_features_keep_their_order_through_json(fitted: Fitted) -> None:
    again = Fitted.from_json(json.loads(json.dumps(fitted.to_json(), sort_keys=True)))
    assert list(again.takes) == list(mixed.FEATURES)
