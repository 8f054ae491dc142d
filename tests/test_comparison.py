from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import recorded
from PIL import Image
from rich.console import Console
from test_document import Parsed

from datasets.errors import ParameterError
from tasks.artifact import Store
from tasks.comparison import compare_runs, page, show
from tasks.durable import read_json, write_json
from tasks.run_record import artifact


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Store, dict[str, Any], dict[str, Any]]:
    return recorded.two_runs(tmp_path)


def compared(store: Store, **options: Any) -> dict[str, Any]:
    return compare_runs(["aaaa", "bbbb"], store=str(store.root), **options)


def test_only_what_differs_of_the_recipe_is_told(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, second = runs
    made = compared(store)
    assert made["runs"] == [first["run"], second["run"]]
    assert made["parameters"] == {"learning_rate": [1e-2, 1e-5]}
    assert made["data"] == {}
    scores = [read_json(store.path(artifact(run, "evaluate")) / "metrics.json") for run in (first, second)]
    assert made["metrics"]["accuracy"] == [score["accuracy"] for score in scores]
    assert made["intervals"]["loss"] == [score["intervals"]["loss"] for score in scores]
    assert scores[0]["accuracy"] > scores[1]["accuracy"]
    assert "top_3" not in made["metrics"]
    assert all(seconds > 0 for seconds in made["cost"]["seconds of the training"])
    assert made["cost"]["steps"] == [first["steps"]] * 2
    assert made["decision"] == ["promoted", second["decision"]["reason"]]


def test_the_page_has_table_and_curves(runs: tuple[Store, dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    made = compared(runs[0], out=str(tmp_path / "new" / "runs.html"))
    page = Parsed(Path(made["out"]).read_text())
    assert [tag for tag, _ in page.tags].count("img") == 1
    row = page.texts[page.texts.index("learning_rate") :]
    assert [text for text in row if text.strip()][:3] == ["learning_rate", "0.01", "1e-05"]
    picture = compared(runs[0], out=str(tmp_path / "runs.png"))["out"]
    assert Image.open(picture).size == (1100, 380)


def test_runs_whose_artifacts_are_gone_are_told_by_their_records(
    runs: tuple[Store, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    store, first, _ = runs
    for stage in ("fit", "evaluate"):
        shutil.rmtree(store.path(artifact(first, stage)))
    made = compared(store, out=str(tmp_path / "runs.png"))
    assert made["metrics"]["accuracy"][0] == first["metrics"]["accuracy"]
    assert made["intervals"]["accuracy"][0] is None
    assert made["cost"]["seconds of the training"][0] is made["cost"]["bytes of the weights"][0] is None


def test_one_run_or_another_kind_of_file_is_refused(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    with pytest.raises(ParameterError, match="nothing to compare"):
        compare_runs(["aaaa"], store=str(runs[0].root))
    with pytest.raises(ParameterError, match="kind of file"):
        compared(runs[0], out="runs.pdf")


def test_the_table_is_shown(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    out = io.StringIO()
    store, first, _ = runs
    changed = {**first, "examples_per_second": 12345.6}
    write_json(store.root / "runs" / "toy" / f"{first['run']}.json", changed)
    show(compared(store), Console(file=out, width=160))
    text = out.getvalue()
    assert "1: aaaa1111" in text
    assert "2: bbbb2222" in text
    assert "learning_rate" in text
    assert "batch_size" not in text
    assert "12,346" in text


def test_the_page_has_decisions_below_the_table(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    made = compared(runs[0])
    text = page(made, b"").markdown()
    assert f"- **{made['names'][1]}** {made['decision'][1]}" in text
    assert "| decision |" not in text
