"""How to train: the values of a recipe, each checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from datasets.checks import check_float, check_int
from datasets.errors import ParameterError, UnknownNameError

OPTIMIZERS = {
    "adam": ("b1", "b2", "eps"),
    "adamw": ("b1", "b2", "eps"),
    "lion": ("b1", "b2"),
    "muon": ("beta", "ns_steps", "adam_b1", "adam_b2", "eps"),
    "sgd": ("momentum",),
}
"""Optimizers by their optax names, with the options of each that a recipe may give."""
SCHEDULES = {
    "constant": (),
    "cosine": ("alpha", "exponent"),
    "one-cycle": ("pct_start", "div_factor", "final_div_factor"),
}
"""Schedules, with the options that a recipe may give, by optax's names."""
BELOW_1 = frozenset({"b1", "b2", "beta", "adam_b1", "adam_b2", "momentum", "pct_start"})
DECAY = ("kernels", "all")
PRECISIONS = ("float32", "bfloat16")
ON_NONFINITE = ("stop", "skip")
MOST_SEED = 2**32 - 2  # JAX takes 32 bits of a seed without a word about the rest; dropout uses the seed after it


@dataclass(frozen=True)
class Recipe:
    """How to train; every value here decides the weights, so every value is part of the fit stage's key.

    Attributes:
        model: File under `tasks/models/`.
        epochs: Passes over the train split.
        batch_size: Examples a step.
        learning_rate: Peak of the schedule.
        optimizer: One of OPTIMIZERS, by its optax name.
        optimizer_options: Of that optimizer, by optax's names, such as {"b2": 0.95}; optax's values where absent.
        schedule: One of SCHEDULES; "cosine" falls to 0 at the last step.
        schedule_options: Of that schedule, by optax's names, such as {"alpha": 0.1} for a cosine that ends at a tenth.
        warmup: Share of all steps during which the rate rises from 0, for "cosine" and "constant".
        weight_decay: Of adamw, lion and muon, decoupled.
        decay: What decays: "kernels" (arrays of two axes or more), or "all" with biases and BatchNorm scales.
        clip_norm: Greatest global norm of the gradient; None for no clipping.
        accumulate: Batches whose gradients are averaged into one update.
        ema: Decay of the parameters' exponential moving average, which is then what is evaluated and kept; None for
            none.
        precision: Of the model's arithmetic; "bfloat16" keeps parameters, statistics and the loss in float32.
        label_smoothing: Share of the target that is spread over all classes.
        class_weights: Weight of each class's examples in the loss, in the order of the classes; "balanced" for the
            inverse of how often each occurs in the train split; None for 1.
        huber: Distance from a label that is a number, in the unit in which it is trained (standard deviations, if it is
            standardised), beyond which the loss grows in proportion to it and not to its square, so that outliers count
            less; None for the squared error alone.
        dropout: Rate of the model's dropout.
        augment: Applied to each train batch in this order (see `datasets/augment.py`).
        evaluate_every: Steps between evaluations, besides that at the end of each epoch; None for none.
        early_stopping: Evaluations in a row without a lower loss that end the training; None to train all epochs.
        on_nonfinite: A loss or gradient that is NaN or infinite: "stop" the training, or "skip" the batch.
        max_skips: Batches that may be skipped in all.
        max_skips_in_a_row: Batches that may be skipped one after the other.
        seed: Of the initial weights, the order of examples, dropout and augmentation.
    """

    model: str = "mlp"
    epochs: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    optimizer_options: Mapping[str, float] = field(default_factory=dict)
    schedule: str = "cosine"
    schedule_options: Mapping[str, float] = field(default_factory=dict)
    warmup: float = 0.05
    weight_decay: float = 1e-4
    decay: str = "kernels"
    clip_norm: float | None = None
    accumulate: int = 1
    ema: float | None = None
    precision: str = "float32"
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | str | None = None
    huber: float | None = None
    dropout: float = 0.0
    augment: tuple[Any, ...] = ()
    evaluate_every: int | None = None
    early_stopping: int | None = None
    on_nonfinite: str = "stop"
    max_skips: int = 20
    max_skips_in_a_row: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {"epochs": 1, "batch_size": 1, "accumulate": 1, "max_skips": 1, "max_skips_in_a_row": 1, "seed": 0}
        real = {"learning_rate": (0, math.inf), "warmup": (0, 1), "weight_decay": (0, math.inf),
                "label_smoothing": (0, 1), "dropout": (0, 1)}  # fmt: skip
        for name in ("evaluate_every", "early_stopping"):
            if getattr(self, name) is not None:
                whole[name] = 1
        for name, least in whole.items():
            check_int(name, getattr(self, name), least)
        if self.seed > MOST_SEED:
            raise ParameterError(f"seed can't be {self.seed}", parameter="seed", expected=f"at most {MOST_SEED}")
        for name, (low, high) in real.items():
            check_float(name, getattr(self, name), low, high)
        if self.learning_rate == 0:
            raise ParameterError("a learning rate of 0 learns nothing", parameter="learning_rate", got=0)
        names = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "decay": DECAY, "precision": PRECISIONS,
                 "on_nonfinite": ON_NONFINITE}  # fmt: skip
        for name, known in names.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in known:
                raise UnknownNameError.among(name, value, known)
        for name, cure in {"clip_norm": "None", "ema": "None", "huber": "None"}.items():
            if (value := getattr(self, name)) is not None:
                check_float(name, value, 0, 1 if name == "ema" else math.inf)
                if value == 0:
                    raise ParameterError(f"{name} can't be 0", parameter=name, got=0, cure=cure)
        _check_options("optimizer_options", self.optimizer_options, self.optimizer, OPTIMIZERS[self.optimizer])
        _check_options("schedule_options", self.schedule_options, self.schedule, SCHEDULES[self.schedule])
        _check_class_weights(self.class_weights)


def _check_options(field: str, options: object, owner: str, known: tuple[str, ...]) -> None:
    if not isinstance(options, Mapping):
        raise ParameterError(f"{field} is a mapping", parameter=field, got=repr(options), expected="{name: number}")
    for name, value in options.items():
        if name not in known:
            raise UnknownNameError.among(f"option of {owner}", name, known)
        if name == "ns_steps":
            check_int(f"{field}.{name}", value, 1)
        else:
            check_float(f"{field}.{name}", value, 0, 1 if name in BELOW_1 else math.inf)


def _check_class_weights(weights: object) -> None:
    if weights is None or weights == "balanced":
        return
    if not isinstance(weights, tuple) or not weights:
        raise ParameterError(
            "class_weights is a tuple of numbers", parameter="class_weights", got=repr(weights),
            expected='one number above 0 for each class, "balanced", or None',
        )  # fmt: skip
    for weight in weights:
        check_float("class_weights", weight, 0, math.inf)
        if weight == 0:
            raise ParameterError("class_weights of 0 can leave a batch without a loss", parameter="class_weights")


def check_for_number(recipe: Recipe) -> None:
    """States that a recipe asks for nothing that only classes have.

    Raises:
        ParameterError: It has class_weights or label_smoothing.
    """
    _refuse(recipe, {"class_weights": None, "label_smoothing": 0.0}, "is for classes, and the label is a number")


def check_for_classes(recipe: Recipe) -> None:
    """States that a recipe asks for nothing that only numbers have.

    Raises:
        ParameterError: It has huber.
    """
    _refuse(recipe, {"huber": None}, "is for numbers, and the label has classes")


def _refuse(recipe: Recipe, fields: Mapping[str, Any], why: str) -> None:
    for name, without in fields.items():
        if (value := getattr(recipe, name)) != without:
            raise ParameterError(f"{name} {why}", parameter=name, got=value, expected=without)


RECIPE_FIELDS = tuple(f.name for f in fields(Recipe))
