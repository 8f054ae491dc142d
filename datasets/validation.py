"""What a dataset file says about data that isn't as it should be: what ends a run, what is said, what is set aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.checks import check_float
from datasets.errors import ParameterError, UnknownNameError

ON_BAD = ("fail", "quarantine")
SEVERITIES = ("error", "warn")


@dataclass(frozen=True)
class Validation:
    """Strict unless the dataset file says otherwise.

    Attributes:
        on_bad: A value that is out of range or not finite, or of a table (CSV, Parquet, JSON Lines), that can't be
            the declared feature: "fail", or "quarantine" to leave its row out of the records and write it, with the
            reason, to `quarantine.jsonl`. A file that is damaged as such always ends the run.
        most_bad: Largest share of all raw rows that may be set aside.
        leaks: The same inputs in two splits, by decoded content: "error" or "warn".
        conflicts: The same inputs with different labels, within a split or across: "error" or "warn".
        repeats: The same inputs twice in a split: "error" or "warn".
        missing_classes: A class without examples in a split other than train: "error" or "warn". In train it is
            always an error.
        drift: Largest distance, by feature, between the train split of the last promoted run and today's; 0 to 1.
            L-infinity over the shares of classes for a label, Jensen-Shannon (base 2) over a histogram for numbers.
            A feature that isn't named has `most_drift`.
        most_drift: Limit of the features that `drift` doesn't name; None for no limit.
        on_drift: "error" or "warn".
    """

    on_bad: str = "fail"
    most_bad: float = 0.001
    leaks: str = "error"
    conflicts: str = "warn"
    repeats: str = "warn"
    missing_classes: str = "warn"
    drift: Mapping[str, float] = field(default_factory=dict)
    most_drift: float | None = 0.25
    on_drift: str = "error"

    def __post_init__(self) -> None:
        if self.on_bad not in ON_BAD:
            raise UnknownNameError.among("on_bad", self.on_bad, ON_BAD)
        for name in ("leaks", "conflicts", "repeats", "missing_classes", "on_drift"):
            if getattr(self, name) not in SEVERITIES:
                raise UnknownNameError.among(f"severity of {name}", getattr(self, name), SEVERITIES)
        check_float("most_bad", self.most_bad, 0, 1)
        if not isinstance(self.drift, Mapping):
            raise ParameterError("drift is a mapping", parameter="drift", got=repr(self.drift), expected="by feature")
        limits = {f"drift.{name}": limit for name, limit in self.drift.items()}
        for name, limit in {**limits, "most_drift": self.most_drift}.items():
            if limit is not None:
                check_float(name, limit, 0, 1.000001)
