"""A model in eval mode as one compiled program with a trace budget; every example of a split exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from datasets.schema import Columns, Feature
from tasks.budget import TraceBudget
from tasks.contracts import device_dtype
from tasks.eval_step import pad_batch
from tasks.target import OfClasses, Target

CLASSES = OfClasses()


@dataclass(frozen=True)
class Predictions:
    """What a model says of each example of a split, in the order of the examples.

    Attributes:
        labels: int32 [N], the truth; float32 or float64 where it is a number.
        logits: float32 [N, classes]; [N, 1] where it is a number, the estimate.
        losses: float32 [N], cross-entropy; or squared error.
    """

    labels: np.ndarray
    logits: np.ndarray
    losses: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """int64 [N], the class with the greatest logit."""
        return self.logits.argmax(axis=1)


class Predictor:
    """Compiles a model's forward pass when it is made.

    Args:
        model: In eval mode; not changed.
        inputs: Name of the feature that it sees.
        label: Name of the feature that it predicts.
        feature: Of `inputs`.
        batch_size: Rows of the compiled program; a shorter last batch is padded and masked.
        target: What the label asks of the model.

    Attributes:
        budget: Its traces and compilations.
    """

    def __init__(
        self, model: nnx.Module, inputs: str, label: str, feature: Feature, batch_size: int,
        target: Target = CLASSES,
    ) -> None:  # fmt: skip
        self.inputs, self.label, self.batch_size, self.target = inputs, label, batch_size, target
        self.budget = TraceBudget("predict", 1)
        graph, state = nnx.split(model)
        self._state = nnx.as_pure(state)

        def forward(state: Any, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:  # noqa: ANN401
            logits = nnx.merge(graph, state)(x)
            return logits, target.example_losses(logits, labels)

        shape = (batch_size, *feature.shape)
        self._compiled = self.budget.compile(
            forward, self._state, jax.ShapeDtypeStruct(shape, device_dtype(feature.dtype)),
            jax.ShapeDtypeStruct((batch_size,), target.labels),
        )  # fmt: skip

    def predict(
        self, size: int, read: Callable[[np.ndarray], Columns], model: nnx.Module | None = None
    ) -> Predictions:  # fmt: skip
        """Runs over examples 0 ... size - 1.

        Args:
            size: Number of examples.
            read: Gives the columns of some examples by their ids, int64 [n].
            model: Another one of the same kind, whose arrays the same program takes.
        """
        state = self._state if model is None else nnx.as_pure(nnx.split(model)[1])
        labels, logits, losses = [], [], []
        for start in range(0, size, self.batch_size):
            batch = read(np.arange(start, min(start + self.batch_size, size)))
            rows = len(batch[self.label])
            padded = pad_batch({name: batch[name] for name in (self.inputs, self.label)}, self.batch_size)
            truth = padded[self.label].astype(self.target.labels)
            out = jax.device_get(self._compiled(state, padded[self.inputs], truth))
            labels.append(batch[self.label])
            logits.append(out[0][:rows])
            losses.append(out[1][:rows])
        return Predictions(np.concatenate(labels), np.concatenate(logits), np.concatenate(losses))


class Scorer:
    """Compiles the forward pass without labels when it is made: logits and probabilities.

    Args:
        model: In eval mode; not changed.
        feature: Of its inputs.
        batch_size: Rows of the compiled program; a shorter batch is filled up.

    Attributes:
        budget: Its traces and compilations.
    """

    def __init__(self, model: nnx.Module, feature: Feature, batch_size: int) -> None:
        self.batch_size = batch_size
        self.budget = TraceBudget("score", 1)
        graph, state = nnx.split(model)
        self._state = nnx.as_pure(state)

        def score(state: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:  # noqa: ANN401
            logits = nnx.merge(graph, state)(x)
            return logits, jax.nn.softmax(logits)

        shape = (batch_size, *feature.shape)
        self._compiled = self.budget.compile(
            score, self._state, jax.ShapeDtypeStruct(shape, device_dtype(feature.dtype))
        )

    def score(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits and probabilities, float32 [rows, classes] each, of examples [rows, *feature.shape]."""
        parts = []
        for start in range(0, len(x), self.batch_size):  # all are under way before the first is fetched
            batch = x[start : start + self.batch_size]
            parts.append(self._compiled(self._state, pad_batch({"x": batch}, self.batch_size)["x"]))
        logits, probabilities = zip(*jax.device_get(parts), strict=True)
        return np.concatenate(logits)[: len(x)], np.concatenate(probabilities)[: len(x)]
