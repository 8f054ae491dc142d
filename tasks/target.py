"""What a label asks of a model: one of some classes, or a number. This file alone tells them apart for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from datasets.recipe import Recipe
from tasks.losses import cross_entropy, example_cross_entropy, example_squared_error, single_output

Named = dict[str, jax.Array]


class Target(Protocol):
    """What is asked of a model's outputs, float32 [batch, outputs], and how far they are from the labels, [batch]."""

    @property
    def beside(self) -> str:
        """Name of the metric that is shown beside the loss."""
        ...

    @property
    def labels(self) -> type[np.generic]:
        """What labels are on the device."""
        ...

    def loss(
        self, outputs: jax.Array, labels: jax.Array, recipe: Recipe, weights: np.ndarray | None
    ) -> tuple[jax.Array, Named]:
        """What is minimised, float32 [], and a metric beside it."""
        ...

    def example_losses(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """Of the plain label, unweighted, float32 [batch]."""
        ...

    def example_metrics(self, outputs: jax.Array, labels: jax.Array) -> Named:
        """`loss` and the metric beside it of each example, [batch]."""
        ...

    def answers(self, outputs: jax.Array) -> Named:
        """What an exported model gives, [batch, ...] each."""
        ...


class OfClasses:
    """Softmax cross-entropy, and accuracy beside it; see `Target`."""

    beside, labels = "accuracy", np.int32

    def loss(
        self, outputs: jax.Array, labels: jax.Array, recipe: Recipe, weights: np.ndarray | None
    ) -> tuple[jax.Array, Named]:
        """Mean cross-entropy, weighted by class if the recipe says so, and accuracy, unweighted."""
        mask = None if weights is None else jnp.asarray(weights)[labels]
        loss = cross_entropy(outputs, labels, label_smoothing=recipe.label_smoothing, mask=mask)
        return loss, {"accuracy": (outputs.argmax(axis=1) == labels).mean()}

    def example_losses(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """Cross-entropy."""
        return example_cross_entropy(outputs, labels)

    def example_metrics(self, outputs: jax.Array, labels: jax.Array) -> Named:
        """Loss and correctness."""
        return {"loss": example_cross_entropy(outputs, labels), "accuracy": outputs.argmax(axis=1) == labels}

    def answers(self, outputs: jax.Array) -> Named:
        """Logits and probabilities, [batch, classes] each."""
        return {"logits": outputs, "probabilities": jax.nn.softmax(outputs)}


class OfNumber:
    """Mean squared error or Huber's loss, and the mean absolute error beside it; see `Target`."""

    beside, labels = "mae", np.float32

    def loss(
        self, outputs: jax.Array, labels: jax.Array, recipe: Recipe, weights: np.ndarray | None
    ) -> tuple[jax.Array, Named]:
        """Mean squared error, or Huber's loss if the recipe says so, and mean absolute error.

        Huber's loss is here twice that of Huber 1964 (https://doi.org/10.1214/aoms/1177703732), so that it is the
        squared error near the label.
        """
        metrics = self.example_metrics(outputs, labels)
        losses, errors = metrics["loss"], metrics["mae"]
        if recipe.huber is not None:
            losses = 2 * optax.losses.huber_loss(errors, delta=recipe.huber)
        return losses.mean(), {"mae": errors.mean()}

    def example_losses(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """Squared error."""
        return example_squared_error(outputs, labels)

    def example_metrics(self, outputs: jax.Array, labels: jax.Array) -> Named:
        """Squared and absolute error."""
        loss = example_squared_error(outputs, labels)  # it states the shapes
        return {"loss": loss, "mae": jnp.abs(outputs[:, 0].astype(jnp.float32) - labels.astype(jnp.float32))}

    def answers(self, outputs: jax.Array) -> Named:
        """The number, [batch]."""
        return {"prediction": single_output("answers", outputs)}


def target_of(classes: Sequence[str]) -> Target:
    """What is asked of a model by a label with these classes; without classes it is a number."""
    return OfClasses() if classes else OfNumber()
