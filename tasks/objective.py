"""What a recipe makes of a dataset: model, optimizer, loss and metrics; training, replay and debug mode share it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from datasets.errors import ContractError
from datasets.schema import Dataset, Feature, Recipe
from tasks.artifact import Artifact, Store
from tasks.carry import Policy
from tasks.feed import read_columns
from tasks.optimizers import build_optimizer
from tasks.request import Request
from tasks.step import Batch, LossFn, TrainStep
from tasks.target import target_of
from tasks.weights import build_model


class Objective:
    """The parts of a training that don't depend on where its data lies.

    Attributes:
        dataset: With the recipe.
        weights: float32 [classes], or None if all examples count the same.
        target: What the label asks of the model.
        model: With its first weights.
        parameters: How many numbers are learned.
    """

    def __init__(self, dataset: Dataset, weights: np.ndarray | None = None) -> None:
        self.dataset, self.weights = dataset, weights
        recipe, classes = dataset.recipe, dataset.features[dataset.label].classes
        self.target = target_of(classes)
        self.model = build_model(
            recipe.model, dataset.features[dataset.inputs], len(classes),
            dropout=recipe.dropout, seed=recipe.seed, precision=recipe.precision,
        )  # fmt: skip
        self.parameters = sum(x.size for x in jax.tree.leaves(nnx.state(self.model, nnx.Param)))

    def train_step(
        self, total_steps: int, around: Callable[[LossFn], LossFn] = lambda loss: loss, **shardings: Any,  # noqa: ANN401
    ) -> TrainStep:  # fmt: skip
        """Compiles the train step of a training of so many steps.

        Args:
            total_steps: Of the training; the schedule needs them.
            around: May wrap the loss function.
            **shardings: Those of `TrainStep`; none for a single device.
        """
        recipe = self.dataset.recipe
        return TrainStep(
            self.model, build_optimizer(recipe, total_steps), around(self.loss), self.dataset.features,
            recipe.batch_size, policy=policy(recipe), **shardings,
        )  # fmt: skip

    def loss(self, model: Any, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:  # noqa: ANN401
        """What is minimised, and a metric beside it; see `tasks/target.py`."""
        outputs, labels = model(batch[self.dataset.inputs]), batch[self.dataset.label]
        return self.target.loss(outputs, labels, self.dataset.recipe, self.weights)

    def example_metrics(self, model: Any, batch: Batch) -> dict[str, jax.Array]:  # noqa: ANN401
        """Loss (of the plain label, unweighted) and the metric beside it, of each example."""
        return self.target.example_metrics(model(batch[self.dataset.inputs]), batch[self.dataset.label])

    def table(self) -> str:
        """The model's layers with shapes, parameters and FLOPs of the forward pass of one batch, as text."""
        recipe, feature = self.dataset.recipe, self.dataset.features[self.dataset.inputs]
        classes = len(self.dataset.features[self.dataset.label].classes)
        return model_table(recipe.model, feature, classes, recipe.batch_size, recipe.precision)


@functools.cache
def model_table(name: str, feature: Feature, classes: int, batch_size: int, precision: str) -> str:
    """What `nnx.tabulate` says of a model in eval mode, as plain text."""
    model = build_model(name, feature, classes, dropout=0.0, seed=0, precision=precision)
    model.eval()
    x = jnp.zeros((batch_size, *feature.shape), feature.dtype)
    text = nnx.tabulate(model, x, compute_flops=True, console_kwargs={"width": 150, "force_terminal": False})
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def policy(recipe: Recipe) -> Policy:
    """What the recipe does with a bad batch."""
    return Policy(recipe.on_nonfinite == "skip", recipe.max_skips_in_a_row, recipe.max_skips)


def weights_of_classes(store: Store, request: Request, records: Artifact) -> np.ndarray | None:
    """`class_weights` of a request's recipe, counted in the train split of these records if need be."""
    dataset = request.dataset
    label = dataset.label
    return class_weights(
        dataset.recipe, lambda: read_columns(store, request, records, "train", (label,))[label],
        len(dataset.features[label].classes),
    )  # fmt: skip


def class_weights(recipe: Recipe, labels: Callable[[], np.ndarray], classes: int) -> np.ndarray | None:
    """Weight of each class, float32 [classes]; None if the recipe has none.

    "balanced" is examples / (classes * examples of the class), so that every class has the same say and the mean weight
    of an example is 1 (King & Zeng 2001).

    Args:
        recipe: With `class_weights`.
        labels: Gives the labels of the train split, int [N]; called only if they are needed.
        classes: How many there are.

    Raises:
        ContractError: A class that is to be balanced has no example.
    """
    if recipe.class_weights is None:
        return None
    if isinstance(recipe.class_weights, tuple):
        return np.asarray(recipe.class_weights, np.float32)
    counts = np.bincount(labels(), minlength=classes)
    if not counts.all():
        raise ContractError(
            "a class without examples can't be balanced", got=f"class {int(np.flatnonzero(counts == 0)[0])}",
            cure="leave the class out of the features, or give class_weights as numbers",
        )  # fmt: skip
    return (counts.sum() / (classes * counts)).astype(np.float32)
