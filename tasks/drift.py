"""How far today's train split is from the one that the model in use was trained on.

L-infinity over the shares of classes for a label: the largest change of any class's share. Jensen-Shannon divergence to
base 2 (Lin 1991) over the bins of the older report for numbers: 0 for equal shares, 1 for shares that have nothing in
common. The older data is that of the champion; if the champion was trained on these very records, that of the
champion before it, so that a second run over the same data asks the same question.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from datasets.errors import ArtifactDamaged
from datasets.schema import Dataset
from datasets.splits import ByTime
from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.registry import Registry
from tasks.statistics import FeatureStatistics

TRAINING = "training.json"


def baseline(store: Store, dataset: str, records: str) -> Artifact | None:
    """The report about the data of the last promoted run that had other records than `records`, a digest.

    None before the first promotion, and when that report is gone.

    Raises:
        ArtifactDamaged: The champion's pointer was damaged.
    """
    registry = Registry(store, dataset)
    champion = registry.current()
    for weights in (champion.weights, champion.previous) if champion else ():
        trained_on = _records_of(registry, weights)
        if trained_on is not None and trained_on != records:
            return _report_on(store, dataset, trained_on)
    return None


def _records_of(registry: Registry, weights: str | None) -> str | None:
    for version in registry.versions():
        path = registry.folder / version
        try:
            training = read_json(path / TRAINING)
            if training["digest"] == weights:
                return training["provenance"]["components"]["inputs"]["records"]
        except (OSError, ValueError, KeyError, TypeError):  # a damaged version says nothing
            continue
    return None


def _report_on(store: Store, dataset: str, records: str) -> Artifact | None:
    for path in sorted((store.root / "report" / dataset).glob("*/manifest.json")):
        found = store.find("report", dataset, path.parent.name)
        if found is None:
            continue
        try:
            if store.facts(found)["records"] == records:
                return found
        except (ArtifactDamaged, KeyError):
            continue
    return None


def distances(dataset: Dataset, old: dict[str, Any], today: dict[str, FeatureStatistics]) -> dict[str, Any]:
    """The distance of every feature that both have in the same layout.

    Args:
        dataset: As it is today.
        old: The older report.
        today: Statistics of the train split.

    Returns:
        By feature: {"distance", "measure", "limit"}, and the "component" that is furthest where there are several;
        or {"skipped": why}.
    """
    found: dict[str, Any] = {}
    limits = dataset.validation.drift
    for name, feature in dataset.features.items():
        if old["layout"].get(name) != layout_of(dataset)[name]:
            found[name] = {"skipped": "it has another layout, or other classes, than then"}
            continue
        if isinstance(dataset.splits, ByTime) and name == dataset.splits.column and name not in limits:
            found[name] = {"skipped": "time goes on"}
            continue
        if feature.classes and not feature.shape:
            before = old["splits"]["train"]["classes"][name]
            [now] = today[name].distributions()
            shares = np.bincount(now.values, weights=now.weights, minlength=len(feature.classes)) / now.weights.sum()
            then = np.array([before[one] for one in feature.classes]) / sum(before.values())
            row: dict[str, Any] = {"distance": float(np.abs(shares - then).max()), "measure": "L-infinity"}
        else:
            row = _numbers(old["splits"]["train"]["features"][name], today[name])
        found[name] = {**row, "limit": limits.get(name, dataset.validation.most_drift)}
    return found


def _numbers(old: dict[str, Any], today: FeatureStatistics) -> dict[str, Any]:
    edges, shares = (old[key] if today.by_component else [old[key]] for key in ("edges", "shares"))
    each = [
        jensen_shannon(then, one.histogram(ends))
        for ends, then, one in zip(edges, shares, today.distributions(), strict=True)
    ]
    furthest = int(np.argmax(each))
    row: dict[str, Any] = {"distance": each[furthest], "measure": "Jensen-Shannon"}
    return {**row, "component": furthest} if today.by_component else row


def jensen_shannon(one: list[float], other: list[float]) -> float:
    """Divergence of two lists of shares to base 2, 0 to 1."""
    p, q = np.asarray(one), np.asarray(other)
    middle = (p + q) / 2

    def to_middle(shares: np.ndarray) -> float:
        some = shares > 0
        return float((shares[some] * np.log2(shares[some] / middle[some])).sum())

    return min(max((to_middle(p) + to_middle(q)) / 2, 0.0), 1.0)


def layout_of(dataset: Dataset) -> dict[str, Any]:
    """What must be equal for two reports to be comparable, by feature."""
    return {
        name: [feature.dtype, list(feature.shape), list(feature.classes)] for name, feature in dataset.features.items()
    }
