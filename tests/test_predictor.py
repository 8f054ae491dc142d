from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy
from flax import nnx

from datasets.errors import TraceBudgetExceeded
from datasets.schema import Columns
from tasks.predictor import Predictions, Predictor, Scorer
from tasks.weights import build_model

SIZE = 50
COLUMNS = toy.pictures(SIZE)
FEATURE = toy.dataset().features["image"]


@pytest.fixture(scope="module")
def model() -> nnx.Module:
    made = build_model("mlp", FEATURE, 3, dropout=0.5, seed=0)
    made.eval()
    return made


def predict(model: nnx.Module, batch_size: int, reads: list[np.ndarray] | None = None) -> Predictions:
    def read(ids: np.ndarray) -> Columns:
        if reads is not None:
            reads.append(ids)
        return {name: column[ids] for name, column in COLUMNS.items()}

    predictor = Predictor(model, "image", "label", FEATURE, batch_size)
    made = predictor.predict(SIZE, read)
    assert (predictor.budget.report()["used"], predictor.budget.report()["budget"]) == (1, 1)
    return made


@pytest.fixture(scope="module")
def expected(model: Any) -> np.ndarray:
    return np.asarray(model(COLUMNS["image"]))


@pytest.mark.parametrize("batch_size", [1, 7, 49, SIZE, SIZE + 1, 256])
def test_every_example_counts_once_whatever_the_batch(model: nnx.Module, expected: Any, batch_size: int) -> None:
    reads: list[np.ndarray] = []
    made = predict(model, batch_size, reads)
    np.testing.assert_array_equal(np.concatenate(reads), np.arange(SIZE))
    np.testing.assert_array_equal(made.labels, COLUMNS["label"])
    np.testing.assert_allclose(made.logits, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(made.predicted, expected.argmax(axis=1))
    assert (made.logits.dtype, made.logits.shape) == (np.float32, (SIZE, 3))


def test_losses_are_those_of_the_formula(model: nnx.Module, expected: np.ndarray) -> None:
    made = predict(model, 16)
    wide = expected.astype(np.float64)
    log_sum = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
    np.testing.assert_allclose(made.losses, log_sum - wide[np.arange(SIZE), COLUMNS["label"]], rtol=1e-4, atol=1e-6)


def test_the_same_twice_is_equal_to_the_last_bit(model: nnx.Module) -> None:
    first, second = predict(model, 16), predict(model, 16)
    assert first.logits.tobytes() == second.logits.tobytes()
    assert first.losses.tobytes() == second.losses.tobytes()


def test_the_model_is_left_as_it_was(model: nnx.Module) -> None:
    import jax

    before = [np.array(x) for x in jax.tree.leaves(nnx.as_pure(nnx.state(model, nnx.Param)))]
    predict(model, 16)
    for x, y in zip(before, jax.tree.leaves(nnx.as_pure(nnx.state(model, nnx.Param))), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_second_trace_is_refused(model: nnx.Module) -> None:
    import jax

    predictor = Predictor(model, "image", "label", FEATURE, 4)
    shape = jax.ShapeDtypeStruct((5, *FEATURE.shape), np.uint8)
    with pytest.raises(TraceBudgetExceeded):
        predictor.budget.compile(lambda x: x + 1, shape)


def test_bad_logits_are_given_as_they_are(model: nnx.Module) -> None:
    broken: Any = build_model("mlp", FEATURE, 3, dropout=0.0, seed=0)
    broken.head.bias[...] = np.array([0, np.nan, 0], np.float32)
    broken.eval()
    assert np.isnan(predict(broken, 16).logits[:, 1]).all()


@pytest.mark.parametrize("batch_size", [1, 7, SIZE, 64])
def test_scores_without_labels_are_those_of_evaluation(model: nnx.Module, batch_size: int) -> None:
    scorer = Scorer(model, FEATURE, batch_size)
    logits, probabilities = scorer.score(COLUMNS["image"])
    evaluated = predict(model, batch_size).logits
    np.testing.assert_array_equal(logits, evaluated)  # equal batches run the same kernels
    wide = np.exp(evaluated.astype(np.float64))
    np.testing.assert_allclose(probabilities, wide / wide.sum(axis=1, keepdims=True), atol=1e-6)
    assert (logits.dtype, probabilities.shape) == (np.float32, (SIZE, 3))
    assert scorer.budget.report()["used"] == 1
