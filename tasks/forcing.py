"""Candidates that were refused, and making one the champion all the same, in the name of a person."""

from __future__ import annotations

from typing import Any

import datasets
from datasets.errors import ParameterError, StoreError, UnknownNameError
from tasks.artifact import Store
from tasks.fitted import read_fitted
from tasks.promote import FORMAT
from tasks.registry import Champion, Registry, made

KIND = "decision"
NEWEST = "newest"
SHOWN = 12


def refused(store: Store, dataset: str) -> list[dict[str, Any]]:
    """The decisions against a candidate, the newest first: candidate (its digest), made, outcome, reason, decision."""
    rows = []
    for path in (store.root / KIND / dataset).glob("*"):
        found = store.find(KIND, dataset, path.name)
        if found is None or (facts := store.facts(found))["promoted"] or facts.get("format") != FORMAT:
            continue
        rows.append({
            "candidate": facts["candidate"], "made": store.manifest(found)["provenance"]["created"],
            "outcome": facts["outcome"], "reason": facts["reason"], "decision": facts,
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["made"], row["candidate"]), reverse=True)


def force(registry: Registry, candidate: str, by: str) -> Champion:
    """Makes a refused candidate the champion; the version's decision says who wanted it and why it was refused.

    Args:
        registry: Whose lock is held.
        candidate: The first digits of its digest, or "newest".
        by: Name of the person.

    Raises:
        ParameterError: Nobody is named, or the digits fit several.
        UnknownNameError: They fit none.
        StoreError: What the candidate was made from is gone.
    """
    from tasks.model_card import version_files

    if not by.strip():
        raise ParameterError("say who forces it", parameter="by", got=repr(by), cure='--by "Your Name"')
    store, name = registry.store, registry.dataset
    row = _chosen(refused(store, name), candidate)
    decision = row["decision"]
    kinds = {"weights": "candidate", "records": "records", "evaluation": "evaluation"}
    parts = {kind: made(store, kind, name, decision[field]) for kind, field in kinds.items()}
    if gone := [kind for kind, artifact in parts.items() if artifact is None]:
        raise StoreError(
            "what the candidate was made from is gone", missing=", ".join(gone), candidate=row["candidate"],
            cure="run the training again",
        )  # fmt: skip
    weights = parts["weights"]
    before = registry.current()
    forced = {
        **decision, "promoted": True, "outcome": "forced", "forced_by": by,
        "champion_before": before.version if before else None,
        "reason": f"forced by {by}; it had been refused: {decision['reason']}",
    }  # fmt: skip
    fitted = read_fitted(store.path(weights))  # type: ignore[arg-type]
    dataset = datasets.load(name)
    files = version_files(
        store, name, dataset if fitted is None else fitted.dataset(dataset), version=registry.next(),
        decision=forced, **parts,  # type: ignore[arg-type]
    )  # fmt: skip
    return registry.crown(registry.add(weights, files))  # type: ignore[arg-type]


def _chosen(rows: list[dict[str, Any]], candidate: str) -> dict[str, Any]:
    known = [row["candidate"][:SHOWN] for row in rows]
    if candidate == NEWEST and rows:
        return rows[0]
    fitting = {row["candidate"]: row for row in reversed(rows) if len(candidate) >= 6
               and row["candidate"].startswith(candidate)}  # fmt: skip
    if not fitting:
        raise UnknownNameError.among("refused candidate", candidate, known)
    if len(fitting) > 1:
        raise ParameterError("these digits fit several candidates", parameter="force", got=candidate,
                             expected="more digits", known=", ".join(each[:SHOWN] for each in fitting))  # fmt: skip
    return next(iter(fitting.values()))
