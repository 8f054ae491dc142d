"""Stage `promote`: the candidate becomes the champion if it is better on the same examples; the decision is recorded.

The rule: without a champion, the candidate is promoted. Otherwise both are held against the same test examples, and the
candidate is promoted only if the exact one-sided McNemar test says that it is better at a level of 5 %. A tie, and a
difference that chance explains, keep the champion: a nightly training doesn't change the model for noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from datasets.errors import CheckpointMismatch, NonFiniteError
from datasets.schema import Dataset
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_json
from tasks.evaluate import METRICS, PREDICTIONS, predict_split
from tasks.feed import columns
from tasks.registry import Champion, Registry
from tasks.stage import Job, Run, Stage

DECISION = "decision.json"
MODEL = "model.json"
LEVEL = 0.05


def promote_candidate(job: Job, records: Artifact, weights: Artifact, evaluation: Artifact) -> Artifact:
    """A decision: promoted or refused, and why. A refusal is a result, not an error.

    Raises:
        ArtifactDamaged: The champion was damaged on disk; it isn't replaced silently.
    """
    registry = Registry(job.store, job.request.name)
    with registry.lock():
        champion = registry.champion()
        decision = decide(job, records, weights, evaluation, champion)
        if decision["promoted"]:
            metrics = read_json(job.store.path(evaluation) / METRICS)
            model = registry.add(weights, {"metrics.json": metrics, DECISION: decision})
            decision = {**decision, "version": registry.crown(model).version}

    def fill(draft: Draft) -> None:
        write_json(draft.folder / DECISION, decision)
        draft.facts = decision

    return job.commit("decision", fill)


def decide(
    job: Job, records: Artifact, weights: Artifact, evaluation: Artifact, champion: Champion | None
) -> dict[str, Any]:
    """Promoted or not, why, and on what grounds; the same as before when it was decided before."""
    grounds = {
        "candidate": weights.digest,
        "champion_before": None if champion is None else champion.version,
        "records": records.digest,
        "evaluation": evaluation.digest,
    }
    if champion is None:
        return {**grounds, "promoted": True, "reason": "no champion"}
    if champion.weights != weights.digest:
        return {**grounds, **compare(job, records, evaluation, champion)}
    past = read_json(job.store.path(champion.model) / DECISION)
    if past["records"] == records.digest and past["evaluation"] == evaluation.digest:
        return past
    return {**grounds, "promoted": True, "reason": "the candidate is the champion already"}


def compare(job: Job, records: Artifact, evaluation: Artifact, champion: Champion) -> dict[str, Any]:
    """Candidate against champion on the examples of these records' test split."""
    from tasks.scoring import mcnemar

    with np.load(job.store.path(evaluation) / PREDICTIONS, allow_pickle=False) as file:
        candidate = file["predicted"]
    dataset = job.request.dataset
    labels = columns(job.store, job.request, records, "test").read(np.arange(len(candidate)))[dataset.label]
    if why := incomparable(read_json(job.store.path(champion.model) / MODEL), dataset):
        return {"promoted": False, "reason": why}
    try:
        rival, _ = predict_split(job.store, job.request, records, champion.model, "test")
    except (CheckpointMismatch, NonFiniteError) as error:
        return {"promoted": False, "reason": f"the champion can't be evaluated today: {error.what}"}
    test = mcnemar(labels, candidate, rival.predicted)
    better = test["p"] <= LEVEL
    verdict = "better than the champion" if better else "not better than the champion beyond chance"
    return {
        "promoted": better,
        "reason": f"{verdict}: right where it is wrong {test['wins']} times, wrong where it is right {test['losses']}"
        f" times (p = {test['p']:.3f}, level {LEVEL})",
        "test": test,
        "champion_correct": int((rival.predicted == labels).sum()),
    }


def incomparable(card: dict[str, Any], dataset: Dataset) -> str | None:
    """Why a champion can't be held against a candidate; None when it can.

    Args:
        card: The champion's `model.json`.
        dataset: As it is today.
    """
    now = [dataset.label, list(dataset.features[dataset.label].classes)]
    if [card["label"], card["classes"]] != now:
        return f"the champion predicts other classes: {card['label']} of {card['classes']}, now {now[0]} of {now[1]}"
    feature, seen = dataset.features.get(card["inputs"]), card["feature"]
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
    return {"against": rival_of(run), "classes": dataset.features[dataset.label].classes, "label": dataset.label}


def lost_champion(store: Store, decision: Artifact) -> str | None:
    """Says that a decision made a champion and there is none now."""
    if store.facts(decision)["promoted"] and not (pointer := Registry(store, decision.dataset).pointer).exists():
        return f"the champion is gone: {pointer}"
    return None


promote = Stage("promote", promote_candidate, _reads, libraries=("scipy",), lost=lost_champion)
