from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from tasks.artifact import Artifact, Store
from tasks.durable import read_json
from tasks.evaluate import evaluate_weights
from tasks.model_card import CARD, CARD_PAGE, LINEAGE, SCHEMA
from tasks.promote import promote_candidate
from tasks.registry import Registry

ANSWERS = np.where(np.arange(60) < 9, 0, np.arange(60) % 3)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Artifact]]:
    """The folder of v1, made by the real stages, and what it was made from."""
    request = toy.table_request(tmp_path_factory.mktemp("store"), licence="CC0 | public")
    module = types.ModuleType("datasets.toy", "Sixty rows.\n\nTerms: none <at all>.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "datasets.toy", module)
        made = {"records": toy.records_of(request), "weights": toy.weights_that_say(request, ANSWERS, "w")}
        made["evaluation"] = evaluate_weights(toy.job(request, "evaluate"), made["records"], made["weights"])
        promote_candidate(toy.job(request, "promote"), **made)
    champion = Registry(Store(request.store), "toy").champion()
    assert champion is not None
    return request.store / "models" / "toy" / "v1", made


@pytest.mark.parametrize("name", [CARD, CARD_PAGE])
def test_the_card_tells_what_the_model_is_and_how_good(parts: tuple[Path, dict[str, Artifact]], name: str) -> None:
    text = (parts[0] / name).read_text().replace("&lt;", "<").replace("&gt;", ">")
    for word in (
        "toy v1",
        "Toy pictures",
        "circle, cross, ring",
        "Terms: none <at all>.",
        "54 of 60",
        "0.9",
        "no champion",
        "Confusion matrix",
        "float32[60]",
        *(m.digest for m in parts[1].values()),
    ):
        assert word in text, word
    assert ("CC0 \\| public" if name == CARD else "CC0 | public") in text


def test_a_card_has_an_interval_for_each_figure(parts: tuple[Path, dict[str, Artifact]]) -> None:
    metrics = read_json(parts[0] / "metrics.json")
    low, high = metrics["intervals"]["accuracy"]
    assert f"| accuracy | 0.9 | {low:.4g} to {high:.4g} | 54 of 60 |" in (parts[0] / CARD).read_text()
    row = metrics["classes"]["cross"]
    assert f"17 right of 20, said {row['predicted']} times" in (parts[0] / CARD).read_text()


def test_the_lineage_goes_from_raw_to_weights(parts: tuple[Path, dict[str, Artifact]]) -> None:
    lineage: dict[str, Any] = read_json(parts[0] / LINEAGE)
    folder, made = parts
    assert {name: lineage[name]["digest"] for name in ("weights", "evaluation")} == {
        name: made[name].digest for name in ("weights", "evaluation")
    }
    assert lineage["records"] == made["records"].digest
    assert lineage["seeds"] == {"training": 3, "intervals": 0}
    assert lineage["recipe"]["batch_size"] == 16
    schema = read_json(folder / SCHEMA)
    assert schema["label"]["classes"] == list(toy.CLASSES)
    assert schema["x"]["shape"] == [60]


def test_the_decision_is_kept_with_the_version(parts: tuple[Path, dict[str, Artifact]]) -> None:
    assert read_json(parts[0] / "decision.json")["outcome"] == "first"
    assert "Promoted: no champion." in (parts[0] / "decision.md").read_text()
