"""What a dataset file asks of a model before it may replace the champion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.checks import check_float, check_int
from datasets.errors import ParameterError, UnknownNameError

METRICS = ("accuracy", "loss", "top_2", "top_3", "top_5", "roc_auc", "pr_auc", "ece")
NUMBER_METRICS = ("rmse", "mae", "r2", "loss")
"""Of a label that is a number; the loss is the mean squared error then."""
LOWER_IS_BETTER = frozenset({"loss", "ece", "rmse", "mae"})


@dataclass(frozen=True)
class Gate:
    """The rule by which a candidate is promoted: better than the champion beyond chance, and within all limits.

    Without a champion the limits alone decide. All figures are those of the test split.

    Attributes:
        metric: What "better" means: one of `METRICS`; of a number one of `NUMBER_METRICS`, rmse without a gate.
        level: How sure it must be. Accuracy: largest p of the exact one-sided McNemar test. Every other metric: the
            interval of the difference that a paired bootstrap covers with 1 - level lies on the better side.
        minimum: Least value of a metric, such as {"accuracy": 0.97}.
        maximum: Greatest value of a metric, such as {"loss": 0.2}.
        max_class_drop: How far the recall of a class may fall below the champion's, 0.05 for five points.
        max_slice_drop: The same for the accuracy in a slice; of a number how far its rmse may rise, as a share of the
            champion's.
        max_latency_ms: Greatest median time of a prediction of one example, in milliseconds, on the machine that
            decides.
        max_bytes: Greatest size of the weights' file.
    """

    metric: str = "accuracy"
    level: float = 0.05
    minimum: Mapping[str, float] = field(default_factory=dict)
    maximum: Mapping[str, float] = field(default_factory=dict)
    max_class_drop: float | None = None
    max_slice_drop: float | None = None
    max_latency_ms: float | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_float("level", self.level, 1e-6, 0.5)
        for name in ("minimum", "maximum"):
            limits = getattr(self, name)
            if not isinstance(limits, Mapping):
                raise ParameterError("limits are by metric", parameter=name, got=repr(limits), expected="a mapping")
            for metric, limit in limits.items():
                check_float(f"{name}.{metric}", limit, -1e12, 1e12)
        for name in ("max_class_drop", "max_slice_drop"):
            if getattr(self, name) is not None:
                check_float(name, getattr(self, name), 0, 1.000001)
        if self.max_latency_ms is not None:
            check_float("max_latency_ms", self.max_latency_ms, 1e-6, 1e9)
        if self.max_bytes is not None:
            check_int("max_bytes", self.max_bytes, 1)

    def check(self, classes: int, slices: tuple[str, ...]) -> None:
        """States that a dataset has what the gate asks for.

        Args:
            classes: Of the label; 0 for a number.
            slices: Columns by which the test split is sliced.

        Raises:
            UnknownNameError: A metric that such a label doesn't have.
            ParameterError: A limit for slices or classes that aren't there.
        """
        known = metrics_of(classes)
        for metric in (self.metric, *self.minimum, *self.maximum):
            if metric not in known:
                raise UnknownNameError.among("metric of the gate", metric, known)
        if self.max_class_drop is not None and not classes:
            raise ParameterError(
                "a number has no classes", parameter="max_class_drop", got=self.max_class_drop, expected="None",
                cure="max_slice_drop, or maximum={...}",
            )  # fmt: skip
        if self.max_slice_drop is not None and not slices:
            raise ParameterError(
                "there are no slices to hold against each other", parameter="max_slice_drop", got=self.max_slice_drop,
                cure='Dataset(slices=("column",))',
            )  # fmt: skip


def metrics_of(classes: int) -> tuple[str, ...]:
    """The metrics of a label with so many classes, 0 for a number: top-k says something only below their number."""
    if not classes:
        return NUMBER_METRICS
    return tuple(name for name in METRICS if not name.startswith("top_") or int(name[4:]) < classes)
