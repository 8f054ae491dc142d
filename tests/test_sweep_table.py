from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tasks.sweep import SEEN
from tasks.sweep_table import said, show, table_of


def test_the_table_has_the_best_first_and_the_failed_last() -> None:
    def row(rate: float, mean: float | None, **more: Any) -> dict[str, Any]:
        base = {"changes": {"learning_rate": rate}, "mean": mean, "scores": [mean], "interval": None, "failed": {},
                "runs": [], "seconds": 1.0, "cached": 0, "together": False}  # fmt: skip
        return {**base, **more}

    made: dict[str, Any] = {
        "dataset": "toy", "metric": "accuracy", "lower_is_better": False, "split": "test", "confidence": 0.95,
        "rows": [row(1.0, None), row(2.0, 0.25), row(3.0, 0.5, interval=[0.25, 0.75], cached=1)],
        "winner": {"changes": {"learning_rate": 3.0}, "seed": 7, "score": 0.5}, "note": SEEN, "champion": "v2",
        "groups": [{"members": 3, "together": False, "why": "as asked"}],
        "decision": {"promoted": True, "reason": "better"},
    }  # fmt: skip
    rows = table_of(made)
    assert [each["recipe"] for each in rows] == [said({"learning_rate": rate}) for rate in (3.0, 2.0, 1.0)]
    assert [each[""] for each in rows] == ["winner", "", ""]
    assert rows[0]["95% interval of the mean"] == "0.25 to 0.75"
    assert rows[2]["accuracy, test"] == "failed"
    assert table_of({**made, "lower_is_better": True})[0]["recipe"] == "learning_rate=2.0"
    out = io.StringIO()
    show(made, Console(file=out, width=200))
    assert "Winner, seed 7: promoted (better)." in out.getvalue()
    assert "optimistic" in out.getvalue()
    assert "3 members one after the other: as asked." in out.getvalue()
    program = {"used": 1, "budget": 1, "seconds": 2.0, "compiled_s": 0.5}
    group = {"members": 6, "together": True, "why": "as asked", "state": "ran", "programs": [program, program]}
    for each in made["rows"]:
        each["together"] = True
    show({**made, "groups": [group]}, Console(file=out, width=300))
    assert "Winner, seed 7, as a training of its own accuracy 0.5: promoted (better)." in out.getvalue()
    assert "6 members as 2 programs (what memory allows), ran: 1.0 s to compile (traces" in out.getvalue()
