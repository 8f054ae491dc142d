"""A candidate held against its limits and against the champion: numbers and verdicts, from the answers to examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.gate import LOWER_IS_BETTER, Gate
from datasets.schema import Dataset
from tasks.intervals import draws_for, interval, resampled
from tasks.judge import Fall, Measures, fall_of
from tasks.scoring import SEED, fewer_right, mcnemar, measures

if TYPE_CHECKING:
    from tasks.predictor import Predictions

Check = dict[str, Any]
"""what, limit, got and passed; JSON."""


def limits(gate: Gate, metrics: Mapping[str, Any], size: int, latency: Callable[[], float]) -> list[Check]:
    """The limits that a candidate has to keep by itself. A metric that is missing or NaN keeps none.

    Args:
        gate: Of the dataset.
        metrics: Of the candidate's evaluation.
        size: Of its weights, in bytes.
        latency: Measures milliseconds of a prediction of one example; only called if there is a limit.
    """
    checks = [
        *(_least(f"minimum {name}", limit, metrics.get(name)) for name, limit in gate.minimum.items()),
        *(_most(f"maximum {name}", limit, metrics.get(name)) for name, limit in gate.maximum.items()),
    ]
    if gate.max_latency_ms is not None:
        checks.append(_most("latency of one example, ms", gate.max_latency_ms, latency()))
    if gate.max_bytes is not None:
        checks.append(_most("bytes of the weights", gate.max_bytes, size))
    return checks


def drops(
    dataset: Dataset, candidate: Predictions, champion: Predictions,
    slices: Mapping[str, Mapping[str, np.ndarray]],
) -> list[Check]:  # fmt: skip
    """How far classes and slices fall below the champion: those that fall too far, or the one that falls furthest.

    Args:
        dataset: With the gate and the classes' names.
        candidate: Its answers.
        champion: Its answers to the same examples.
        slices: By column and name, which examples are in it.
    """
    gate, classes, found = dataset.gate, dataset.features[dataset.label].classes, []
    if gate.max_class_drop is not None:
        rows = {f"fall of the recall of class {name}": candidate.labels == i for i, name in enumerate(classes)}
        found += _too_far(gate.max_class_drop, rows, candidate, champion, fewer_right)
    if gate.max_slice_drop is not None:
        rows = {f"fall in {c} {name}": part for c, parts in slices.items() for name, part in parts.items()}
        found += _too_far(gate.max_slice_drop, rows, candidate, champion, fall_of(classes))
    return found


def _too_far(
    limit: float, parts: Mapping[str, np.ndarray], candidate: Predictions, champion: Predictions, fall: Fall
) -> list[Check]:  # fmt: skip
    def checked() -> Iterator[Check]:
        for what, rows in parts.items():
            if size := int(rows.sum()):
                found = fall(candidate, champion, rows)
                yield {**_most(what, limit, found.pop("got")), **found, "examples": size}

    falls = sorted(checked(), key=lambda check: -np.inf if check["got"] is None else -check["got"])
    return [check for check in falls if not check["passed"]] or falls[:1]


def versus(
    gate: Gate, candidate: Predictions, champion: Predictions, measured: Measures = measures
) -> dict[str, Any]:  # fmt: skip
    """Whether a candidate is better beyond chance, by the gate's metric on the same examples.

    Accuracy: the exact one-sided McNemar test, p at most the level. Another metric: both models are measured on the
    same draws of the examples, and the interval of the difference, which holds 1 - level of the draws, must lie wholly
    on the better side; so between equals it does in about level / 2 of the cases. What is undefined is not better.

    Returns:
        JSON: metric, method, candidate and champion (their figures), better, equal (no difference at all), and
        wins, losses and p, or difference (above 0 is better), interval and draws.
    """
    metric = gate.metric
    made = {"metric": metric, "level": gate.level}
    if metric == "accuracy":
        test = mcnemar(candidate.labels, candidate.predicted, champion.predicted)
        right = [int((each.predicted == each.labels).sum()) for each in (candidate, champion)]
        size = len(candidate.labels)
        return {
            **made, "method": "exact one-sided McNemar test", "candidate": right[0] / size,
            "champion": right[1] / size, "candidate_correct": right[0], "champion_correct": right[1],
            "examples": size, **test, "equal": right[0] == right[1], "better": bool(test["p"] <= gate.level),
        }  # fmt: skip
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    figures, drawn, number = [], [], draws_for(len(candidate.labels), candidate.logits.shape[1])
    for each in (candidate, champion):
        some = measured(each.labels, each.logits, each.losses, only={metric})
        one = np.ones((1, len(each.labels)), np.float32)
        figures.append(float(some[metric](one)[0]) if some else None)
        drawn.append(resampled(some, len(each.labels), number, SEED).get(metric, np.full(number, np.nan)))
    ends = interval(sign * (drawn[0] - drawn[1]), 1 - gate.level)
    known = None not in figures
    return {
        **made, "method": "paired bootstrap", "candidate": figures[0], "champion": figures[1],
        "difference": sign * (figures[0] - figures[1]) if known else None, "interval": ends, "draws": number,
        "seed": SEED, "examples": len(candidate.labels), "equal": known and figures[0] == figures[1],
        "better": ends is not None and ends[0] > 0,
    }  # fmt: skip


def verdict(test: Mapping[str, Any]) -> str:
    """One sentence about the outcome of `versus`."""
    said = "better than the champion" if test["better"] else "not better than the champion beyond chance"
    if test["metric"] == "accuracy":
        return (
            f"{said}: right where it is wrong {test['wins']} times, wrong where it is right {test['losses']} times"
            f" (p = {test['p']:.3f}, level {test['level']:g})"
        )
    if test["interval"] is None:
        return f"{said}: {test['metric']} is undefined on these examples"
    low, high = test["interval"]
    side = "worse" if test["difference"] < 0 else "better"
    return (
        f"{said}: {test['metric']} {test['candidate']:.4f} against {test['champion']:.4f}, {side} by"
        f" {abs(test['difference']):.4f} ({1 - test['level']:.0%} interval of the gain {low:.4f} to {high:.4f})"
    )


def rule(gate: Gate) -> str:
    """The rule in words, for the record."""
    metric = gate.metric
    how = (
        f"the exact one-sided McNemar test says so at a level of {gate.level:g}"
        if metric == "accuracy"
        else f"the {1 - gate.level:.0%} interval of the difference (paired bootstrap) lies on the better side"
    )
    limited = [name for name in ("minimum", "maximum") if getattr(gate, name)]
    limited += [name for name in ("max_class_drop", "max_slice_drop", "max_latency_ms", "max_bytes")
                if getattr(gate, name) is not None]  # fmt: skip
    text = f"promoted if better in {metric} on the same test examples, where {how}; a tie keeps the champion"
    return f"{text}; limits: {', '.join(limited) or 'none are set'}"


def _least(what: str, limit: float, got: float | None) -> Check:
    return {"what": what, "limit": limit, "got": got, "passed": got is not None and bool(got >= limit)}


def _most(what: str, limit: float, got: float | None) -> Check:
    return {"what": what, "limit": limit, "got": got, "passed": got is not None and bool(got <= limit)}
