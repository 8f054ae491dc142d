"""The record of a decision as a page for people: what was decided, by what rule, on what grounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.document import Document

if TYPE_CHECKING:  # a run that has nothing to decide loads no statistics
    from tasks.gate import Check

COMPARISON = (
    "metric", "level", "examples", "candidate", "champion", "candidate_correct", "champion_correct", "wins", "losses",
    "p", "difference", "interval", "draws", "seed",
)  # fmt: skip
"""Of `versus`, in this order: what is read back from JSON has another."""


def page(dataset: str, decision: dict[str, Any]) -> str:
    """The page of a decision, as Markdown."""
    document = Document(f"Decision about a model of {dataset}")
    write_decision(document, decision)
    return document.markdown()


def write_decision(document: Document, decision: dict[str, Any]) -> None:
    """Adds a decision to a page."""
    verdict = "Promoted" if decision["promoted"] else "Not promoted"
    document.text(f"{verdict}: {decision['reason']}.")
    document.text(f"Rule: {decision['rule']}.")
    facts = {
        "outcome": decision["outcome"],
        "forced by": decision.get("forced_by"),
        "version": decision.get("version"),
        "champion before": decision["champion_before"],
        "candidate (digest of its weights)": decision["candidate"],
        "test examples (digest of the records)": decision["records"],
        "evaluation": decision["evaluation"],
    }
    document.table(["", ""], [[name, str(value)] for name, value in facts.items() if value is not None])
    if test := decision.get("test"):
        rows = [[name.replace("_", " "), shown(test[name])] for name in COMPARISON if name in test]
        document.table(["comparison", test["method"]], rows)
    if checks := decision["checks"]:
        document.table(["limit", "wanted", "found", ""], [_row(check) for check in checks])


def _row(check: Check) -> list[str]:
    return [check["what"], shown(check["limit"]), shown(check["got"]), "kept" if check["passed"] else "NOT KEPT"]


def shown(value: Any) -> str:  # noqa: ANN401
    """A number, a list of them or a text, short enough for a cell."""
    if isinstance(value, list | tuple):
        return " to ".join(shown(each) for each in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return "undefined" if value is None else str(value)
