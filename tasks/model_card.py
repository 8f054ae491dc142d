"""What stands beside the weights of a version: metrics, decision, schema, lineage, and the card that tells of them."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from typing import Any

from datasets.gate import metrics_of
from datasets.schema import Dataset
from tasks.artifact import Artifact, Store
from tasks.canonical import canonical, plain
from tasks.decision import page, shown, write_decision
from tasks.document import Document
from tasks.durable import read_json
from tasks.evaluate import METRICS, MISTAKES_PICTURE, said_against_truth
from tasks.registry import made
from tasks.scoring import SEED

CARD, CARD_PAGE = "card.md", "card.html"
LINEAGE, SCHEMA = "lineage.json", "schema.json"
MOST_ROWS = 100


def version_files(
    store: Store, name: str, dataset: Dataset, *, version: str, records: Artifact, weights: Artifact,
    evaluation: Artifact, decision: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The files of a version besides the weights, by name: JSON values, or bytes.

    Args:
        store: Where the artifacts are.
        name: Of the dataset.
        dataset: As it was for this run.
        version: Such as "v3".
        records: That the model was trained and tested on.
        weights: Of the model.
        evaluation: Of the weights.
        decision: That promoted them.
    """
    metrics = read_json(store.path(evaluation) / METRICS)
    lineage = lineage_of(store, dataset, records, weights, evaluation)
    schema = {feature: asdict(value) for feature, value in dataset.features.items()}
    card = Document(f"{name} {version}")
    notes = (getattr(sys.modules.get(f"datasets.{name}"), "__doc__", None) or "").strip()
    _about(card, dataset, notes, lineage)
    write_metrics(card, metrics, len(dataset.features[dataset.label].classes))
    folder = store.path(evaluation)
    for about, path in (said_against_truth(folder), ("The worst mistakes", folder / MISTAKES_PICTURE)):
        if path.is_file():
            card.picture(about, path.read_bytes())
    card.heading("Decision")
    write_decision(card, {**decision, "version": version})
    _lineage(card, lineage)
    return {
        "metrics.json": metrics, "decision.json": decision, "decision.md": page(name, decision).encode(),
        LINEAGE: lineage, SCHEMA: schema, CARD: card.markdown().encode(), CARD_PAGE: card.html().encode(),
    }  # fmt: skip


def lineage_of(
    store: Store, dataset: Dataset, records: Artifact, weights: Artifact, evaluation: Artifact
) -> dict[str, Any]:
    """Where a model came from, from raw file to weights, as JSON; what an older store doesn't know is missing."""
    trained = store.manifest(weights)["provenance"].get("components", {})
    raw_digest = store.manifest(records)["provenance"].get("components", {}).get("inputs", {}).get("raw")
    raw = made(store, "raw", records.dataset, raw_digest)
    recipe = trained.get("parameters", {}).get("recipe") or canonical(dataset.recipe, set())
    code = trained.get("code", {})
    text = json.dumps(code, sort_keys=True)
    return {
        "raw": {"digest": raw_digest, "files": store.facts(raw)["files"] if raw else None},
        "records": records.digest,
        "weights": {"digest": weights.digest, "key": weights.key},
        "evaluation": {"digest": evaluation.digest, "key": evaluation.key},
        "code": {"fingerprint": hashlib.sha256(text.encode()).hexdigest(), "definitions": len(code)},
        "libraries": trained.get("libraries", {}),
        "python": trained.get("python"),
        "recipe": plain(recipe)["Recipe"],
        "warm_start": trained.get("parameters", {}).get("warm_start"),
        "seeds": {"training": recipe["seed"], "intervals": SEED},
    }


def _about(card: Document, dataset: Dataset, notes: str, lineage: dict[str, Any]) -> None:
    card.text(f"{dataset.about}.")
    label = dataset.features[dataset.label]
    card.table(["", ""], [
        ["model", lineage["recipe"]["model"]],
        ["sees", f"{dataset.inputs}: {dataset.features[dataset.inputs].dtype}"
                 f"{list(dataset.features[dataset.inputs].shape)}"],
        ["predicts", f"{dataset.label}: {', '.join(label.classes[:MOST_ROWS]) or label.dtype}"],
        ["weights", lineage["weights"]["digest"]],
        ["licence of the data", dataset.licence or "not stated in the dataset file"],
    ])  # fmt: skip
    if notes:
        card.heading("The data, in the words of the dataset file")
        card.verbatim(notes)
    card.heading("Schema")
    card.table(["column", "dtype", "shape", "bounds", "role"], [
        [name, one.dtype, str(list(one.shape)), "" if one.bounds == (None, None) else shown(one.bounds),
         "input" if name == dataset.inputs else "label" if name == dataset.label else "kept beside"]
        for name, one in dataset.features.items()
    ])  # fmt: skip


def write_metrics(card: Document, metrics: dict[str, Any], classes: int) -> None:
    """Adds the metrics of the test split with their intervals, of classes and slices too, to a page."""
    card.heading("Metrics on the test split")
    drawn = metrics["bootstrap"]
    card.text(
        f"{metrics['examples']:,} examples, each counted once. Intervals hold {drawn['confidence']:.0%} of"
        f" {drawn['draws']:,} bootstrap draws (seed {drawn['seed']})."
    )
    rows = [
        [name, shown(metrics[name]), _ends(metrics["intervals"].get(name)), _counts(metrics, name)]
        for name in metrics_of(classes) if name in metrics
    ]  # fmt: skip
    columns = 4 if any(row[3] for row in rows) else 3  # of numbers nothing is counted
    card.table(["metric", "value", "interval", "counted"][:columns], [row[:columns] for row in rows])
    if metrics.get("classes"):
        card.table(["class", "recall", "interval", "precision", "interval", "F1", "interval", "counted"], [
            [name, shown(row["recall"]), _ends(row["intervals"]["recall"]), shown(row["precision"]),
             _ends(row["intervals"]["precision"]), shown(row["f1"]), _ends(row["intervals"]["f1"]),
             f"{row['correct']} right of {row['support']}, said {row['predicted']} times"]
            for name, row in list(metrics["classes"].items())[:MOST_ROWS]
        ])  # fmt: skip
    for column, parts in metrics.get("slices", {}).items():
        measured = sorted({name for row in parts.values() for name in row["intervals"]})
        head = [each for name in measured for each in (name, "interval")]
        card.table([f"slice by {column}", "examples", *head], [
            [name, f"{row['examples']:,}",
             *(cell for each in measured for cell in (shown(row[each]), _ends(row["intervals"][each])))]
            for name, row in parts.items()
        ])  # fmt: skip


def _lineage(card: Document, lineage: dict[str, Any]) -> None:
    card.heading("Where it came from")
    libraries = ", ".join(f"{name} {version}" for name, version in lineage["libraries"].items())
    code = lineage["code"]
    rows = [
        ["raw files, digest of all", str(lineage["raw"]["digest"])],
        ["records", lineage["records"]],
        ["weights", f"{lineage['weights']['digest']}, key {lineage['weights']['key']}"],
        ["evaluation", f"{lineage['evaluation']['digest']}, key {lineage['evaluation']['key']}"],
        ["code of the training", f"{code['fingerprint']}, over {code['definitions']} definitions"],
        ["versions", f"Python {lineage['python']}, {libraries}"],
        ["seeds", ", ".join(f"{name} {seed}" for name, seed in lineage["seeds"].items())],
        ["started from", str(lineage["warm_start"] or "random weights")],
        ["recipe", ", ".join(f"{name} {value}" for name, value in lineage["recipe"].items())],
    ]
    card.table(["", ""], rows)
    if files := lineage["raw"]["files"]:
        card.table(["raw file", "SHA-256"], [[name, digest] for name, digest in list(files.items())[:MOST_ROWS]])


def _ends(ends: list[float] | None) -> str:
    return "undefined" if ends is None else shown(ends)


def _counts(metrics: dict[str, Any], name: str) -> str:
    count = metrics.get("correct" if name == "accuracy" else f"{name}_correct")
    return "" if count is None else f"{count:,} of {metrics['examples']:,}"
