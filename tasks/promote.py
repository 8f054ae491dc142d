"""Stage `promote`: the candidate becomes the champion if it is better on the same examples; the decision is recorded.

The rule is in the dataset file (`datasets/gate.py`). By default: without a champion, the candidate is promoted;
otherwise both are held against the same test examples, and the candidate is promoted only if the exact one-sided
McNemar test says that it is more often right at a level of 5 %. A tie, and a difference that chance explains, keep the
champion: a nightly training doesn't change the model for noise.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.errors import CheckpointMismatch, NonFiniteError, StoreError
from datasets.schema import Dataset
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_bytes, write_json
from tasks.evaluate import METRICS, PREDICTIONS, predict_split
from tasks.feed import as_recorded, read_columns
from tasks.fitted import TRANSFORMS
from tasks.registry import Champion, Registry
from tasks.stage import Job, Run, Stage

if TYPE_CHECKING:
    from tasks.predictor import Predictions

DECISION, PAGE = "decision.json", "decision.md"
MODEL, WEIGHTS = "model.json", "weights.safetensors"
FORMAT = 2


def promote_candidate(job: Job, records: Artifact, weights: Artifact, evaluation: Artifact) -> Artifact:
    """A decision: promoted or refused, and why. A refusal is a result, not an error.

    Raises:
        ArtifactDamaged: The champion was damaged on disk; it isn't replaced silently.
    """
    from tasks.decision import page
    from tasks.model_card import version_files

    registry = Registry(job.store, job.request.name)
    with registry.lock():
        champion = registry.champion()
        decision = decide(job, records, weights, evaluation, champion)
        if decision["promoted"]:
            model = registry.add(weights, version_files(
                job.store, job.request.name, job.request.dataset, version=registry.next(), records=records,
                weights=weights, evaluation=evaluation, decision=decision,
            ))  # fmt: skip
            decision = {**decision, "version": registry.crown(model).version}

    def fill(draft: Draft) -> None:
        write_json(draft.folder / DECISION, decision)
        write_bytes(draft.folder / PAGE, page(job.request.name, decision).encode())
        draft.facts = decision

    return job.commit("decision", fill)


def decide(
    job: Job, records: Artifact, weights: Artifact, evaluation: Artifact, champion: Champion | None
) -> dict[str, Any]:
    """Promoted or not, why, and on what grounds; the same as before when it was decided before.

    Returns:
        JSON: promoted, outcome ("first", "better", "tie", "not better", "outside its limits", "schema changed",
        "champion can't be evaluated" or "champion already"), reason, the rule in words and the gate in numbers, checks
        (limits with what was found), test (see `versus`), and the digests of all that it is about.
    """
    from tasks.gate import limits, rule

    dataset, store = job.request.dataset, job.store
    gate = dataset.gate
    grounds = {
        "format": FORMAT,
        "candidate": weights.digest,
        "champion_before": None if champion is None else champion.version,
        "records": records.digest,
        "evaluation": evaluation.digest,
        "gate": asdict(gate),
        "rule": rule(gate),
    }
    if champion is not None and champion.weights == weights.digest:
        past = read_json(store.path(champion.model) / DECISION)
        told = (past.get("format"), past.get("records"), past.get("evaluation"))
        if told == (FORMAT, records.digest, evaluation.digest):
            return past
        reason = "the candidate is the champion already"
        return {**grounds, "promoted": True, "outcome": "champion already", "reason": reason, "checks": []}

    def latency() -> float:
        from tasks.latency import latency_ms

        return latency_ms(store, job.request, records, weights)

    size = store.manifest(weights)["files"][WEIGHTS]["bytes"]
    checks = limits(gate, read_json(store.path(evaluation) / METRICS), size, latency)
    if champion is None:
        found: dict[str, Any] = {"better": True, "outcome": "first", "reason": "no champion", "checks": []}
    else:
        found = compare(job, records, evaluation, champion)
    checks += found.pop("checks")
    broken = [check for check in checks if not check["passed"]]
    better = found.pop("better")
    if broken:
        found["reason"] += "; outside its limits: " + ", ".join(
            f"{check['what']} {check['got']} (limit {check['limit']:g})" for check in broken
        )
        found["outcome"] = "outside its limits" if better else found["outcome"]
    return {**grounds, "promoted": better and not broken, "checks": checks, **found}


def compare(job: Job, records: Artifact, evaluation: Artifact, champion: Champion) -> dict[str, Any]:
    """Candidate against champion on the examples of these records' test split."""
    from tasks.gate import drops, verdict, versus
    from tasks.judge import measures_of
    from tasks.slices import slice_columns

    dataset = job.request.dataset
    no: dict[str, Any] = {"better": False, "checks": []}
    folder = job.store.path(champion.model)
    transforms = job.request.fitted is not None or (folder / TRANSFORMS).exists()
    if why := incomparable(read_json(folder / MODEL), dataset, transforms=transforms):
        return {**no, "outcome": "schema changed", "reason": why}
    try:
        rival, _ = predict_split(job.store, job.request, records, champion.model, "test")
    except (CheckpointMismatch, NonFiniteError) as error:
        reason = f"the champion can't be evaluated today: {error.what}"
        return {**no, "outcome": "champion can't be evaluated", "reason": reason}
    candidate = answers(job, records, evaluation)
    test = versus(dataset.gate, candidate, rival, measures_of(dataset.features[dataset.label].classes))
    sliced = slice_columns(dataset, read_columns(job.store, job.request, records, "test", dataset.slices))
    return {
        "better": test["better"],
        "outcome": "better" if test["better"] else "tie" if test["equal"] else "not better",
        "reason": verdict(test),
        "test": test,
        "checks": drops(dataset, candidate, rival, sliced),
    }


def answers(job: Job, records: Artifact, evaluation: Artifact) -> Predictions:
    """What the candidate said in its evaluation, with the labels of these records.

    Raises:
        StoreError: They are of another number of examples.
    """
    from tasks.predictor import Predictions

    label = job.request.dataset.label
    labels = read_columns(job.store, as_recorded(job.request), records, "test", (label,))[label]
    with np.load(job.store.path(evaluation) / PREDICTIONS, allow_pickle=False) as file:
        made = Predictions(labels, file["logits"], file["losses"])
    if len(made.logits) != len(labels):
        raise StoreError("the evaluation is of other examples", got=len(made.logits), expected=len(labels))
    return made


def incomparable(card: dict[str, Any], dataset: Dataset, *, transforms: bool = False) -> str | None:
    """Why a champion can't be held against a candidate; None when it can.

    Args:
        card: The champion's `model.json`.
        dataset: As it is today.
        transforms: Whether inputs are made from records by transforms: each model has its own then, and a vocabulary
            that grew makes wider inputs of the same records.
    """
    label, classes = dataset.label, list(dataset.features[dataset.label].classes)
    if card["label"] != label or sorted(card["classes"]) != sorted(classes):  # their order may change
        return f"the champion predicts other classes: {card['label']} of {card['classes']}, now {label} of {classes}"
    feature, seen = dataset.features.get(card["inputs"]), card["feature"]
    if transforms:
        return None
    if feature is None or [feature.dtype, list(feature.shape)] != [seen["dtype"], seen["shape"]]:
        today = "nothing" if feature is None else f"{feature.dtype}{list(feature.shape)}"
        return f"the champion sees other inputs: {card['inputs']} is {seen['dtype']}{seen['shape']}, now {today}"
    return None


def rival_of(run: Run) -> str | None:
    """Digest of the weights that the candidate is held against: the champion's, or those before it if it is champion.

    So the same decision is not taken twice, and a champion that was rolled back by hand stays so.
    """
    candidate = next(outcome.artifact.digest for outcome in run.outcomes if outcome.name == "fit")
    champion = Registry(run.store, run.request.name).champion()
    if champion is None:
        return None
    return champion.previous if champion.weights == candidate else champion.weights


def _reads(run: Run) -> dict[str, Any]:
    dataset = run.request.dataset
    return {
        "against": rival_of(run), "classes": dataset.features[dataset.label].classes, "label": dataset.label,
        "gate": dataset.gate, "slices": {name: dataset.features[name].classes for name in dataset.slices},
    }  # fmt: skip


def lost_champion(store: Store, decision: Artifact) -> str | None:
    """Says that a decision made a champion and there is none now."""
    if store.facts(decision)["promoted"] and not (pointer := Registry(store, decision.dataset).pointer).exists():
        return f"the champion is gone: {pointer}"
    return None


promote = Stage("promote", promote_candidate, _reads, libraries=("numpy", "scipy", "scikit-learn"), lost=lost_champion)
