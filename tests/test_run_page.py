from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import recorded
from rich.console import Console
from test_document import Parsed

from datasets.errors import ArtifactDamaged, UnknownNameError
from tasks.artifact import Store
from tasks.durable import read_json
from tasks.run_page import report_run, run_page, show
from tasks.run_record import artifact

SECTIONS = (
    "From raw files to the champion", "Data", "Curves", "Speed and input", "Programs and traces",
    "Metrics on the test split", "Confusion matrix", "Mistakes", "Decision of the gate",
)  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Store, dict[str, Any], dict[str, Any]]:
    return recorded.two_runs(tmp_path)


def page_of(store: Store, name: str, **options: Any) -> Parsed:
    made = report_run(name, store=str(store.root), **options)
    path = Path(made["page"])
    assert path.stat().st_size == made["bytes"]
    return Parsed(path.read_text(encoding="utf-8"))


def test_the_page_says_all_of_a_run(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, _ = runs
    page = page_of(store, "aaaa")
    text = "\n".join(page.texts)
    links = [str(attrs["href"]) for tag, attrs in page.tags if tag == "a"]
    assert links == [f"#s{i}" for i in range(1, len(SECTIONS) + 1)]
    assert [attrs["id"] for tag, attrs in page.tags if tag == "h2"] == [link[1:] for link in links]
    for section in SECTIONS:
        assert page.texts.count(section) == 2, section  # the link and the heading
    metrics = read_json(store.path(artifact(first, "evaluate")) / "metrics.json")
    low, high = metrics["intervals"]["accuracy"]
    for words in (
        f"{low:.4g} to {high:.4g}", f"{metrics['correct']} of {metrics['examples']}", first["run"], "version v1",
        "Promoted: no champion.", "No other data was promoted before this", "eval", "1 of 1", "greatest ms",
        "learning_rate", "0.01", "raw files", "toy-images-idx3-...", "hidden",
    ):  # fmt: skip
        assert words in text, words
    assert f"weights/toy/{first['made']['fit']['key']}" in page.texts
    assert str(store.root) not in text


def test_the_page_runs_and_loads_nothing(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    page = page_of(runs[0], "toy")
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "b"} & {*tags} - {"b"}
    assert "Toy <b>pictures</b> | & more" in page.texts
    pictures = [str(attrs["src"]) for tag, attrs in page.tags if tag == "img"]
    assert len(pictures) == 7
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in pictures)
    assert tags.count("svg") == 1
    assert not [attrs for _, attrs in page.tags if str(attrs.get("href", "#")).startswith("http")]


def test_what_is_gone_is_named_and_what_is_damaged_is_refused(
    runs: tuple[Store, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    store, first, _ = runs
    shutil.rmtree(store.root / "logs")
    for stage in ("evaluate", "validate", "fit"):
        shutil.rmtree(store.path(artifact(first, stage)))
    text = "\n".join(page_of(store, "aaaa", out=str(tmp_path / "deep" / "a.html")).texts)
    for kind, stage in (("evaluation", "evaluate"), ("report", "validate"), ("weights", "fit")):
        assert f"The {kind} {first['made'][stage]['digest'][:12]} is no longer in the store." in text
    assert "The log of speeds is no longer in the store." in text
    assert f"{first['metrics']['correct']:,} of" in text
    path = store.path(artifact(first, "promote")) / "decision.json"
    path.write_text(path.read_text().replace("no champion", "no chanpion"))
    with pytest.raises(ArtifactDamaged):
        run_page(store, first)


def test_a_run_without_a_decision_says_so(runs: tuple[Store, dict[str, Any], dict[str, Any]]) -> None:
    store, first, _ = runs
    made = {name: value for name, value in first["made"].items() if name != "promote"}
    stages = [stage for stage in first["stages"] if stage["name"] != "promote"]
    decision = {"promoted": False, "reason": "not held against the champion"}
    page = run_page(store, {**first, "made": made, "stages": stages, "decision": decision})
    assert "None: not held against the champion." in page.markdown()


def test_an_unknown_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        report_run("nothing", store=str(tmp_path))


def test_the_command_says_where_the_page_is() -> None:
    out = io.StringIO()
    show({"page": "a[b].html", "bytes": 12_345}, Console(file=out, width=20))
    assert out.getvalue() == "a[b].html, 12 kB\n"
