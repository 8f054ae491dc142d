from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.decision import page, shown

DECISION: dict[str, Any] = {
    "promoted": False, "outcome": "outside its limits", "reason": "better; outside its limits: bytes",
    "rule": "the rule", "candidate": "c" * 64, "champion_before": "v3", "records": "r" * 64, "evaluation": "e" * 64,
    "test": {"method": "paired bootstrap", "metric": "loss", "interval": [0.1, 0.25], "difference": 0.2, "p": None},
    "checks": [{"what": "bytes of the weights", "limit": 10, "got": 11, "passed": False},
               {"what": "minimum a|b", "limit": 0.9, "got": None, "passed": True}],
}  # fmt: skip


def test_the_page_says_verdict_rule_and_grounds() -> None:
    text = page("toy", DECISION)
    assert "Not promoted: better; outside its limits: bytes." in text
    assert "Rule: the rule." in text
    assert "| champion before | v3 |" in text
    for digest in ("c", "r", "e"):
        assert digest * 64 in text
    assert "| interval | 0.1 to 0.25 |" in text
    assert "| p | undefined |" in text
    assert "| bytes of the weights | 10 | 11 | NOT KEPT |" in text
    assert "| minimum a\\|b | 0.9 | undefined | kept |" in text
    assert "forced by" not in text


def test_who_forced_it_is_said() -> None:
    text = page("toy", {**DECISION, "promoted": True, "forced_by": "Ada", "version": "v4"})
    assert "\n\nPromoted: " in text
    assert "| forced by | Ada |" in text
    assert "| version | v4 |" in text


def test_a_record_that_was_read_back_gives_the_same_page() -> None:
    assert page("toy", json.loads(json.dumps(DECISION, sort_keys=True))) == page("toy", DECISION)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (None, "undefined"),
        ([1, 2.5], "1 to 2.5"),
        (-37754.2, "-37,754"),
        (999.96, "1000"),
        (7, "7"),
        ("x", "x"),
    ],
)
def test_values_in_cells(value: object, text: str) -> None:
    assert shown(value) == text
