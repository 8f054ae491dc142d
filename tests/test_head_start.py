"""What is begun when a flow run gets its name is what its flow goes on with, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks import head_start
from tasks.fingerprint import Sources
from tasks.head_start import name_and_begin, run_of
from tasks.request import check

Named = Callable[[str], str]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Named:
    """Gives a flow run of an id its name."""
    parameters: dict[str, Any] = {"dataset": "mnist", "epochs": 2, "store": str(tmp_path), "recipe": None}

    def name(run: str) -> str:
        this = SimpleNamespace(id=run, parameters=parameters)
        monkeypatch.setattr(head_start, "flow_run", this)
        monkeypatch.setattr("prefect.runtime.flow_run", this)
        return name_and_begin()

    head_start._begun.clear()
    return name


def test_the_flow_goes_on_with_what_was_begun_for_it(named: Named, tmp_path: Path) -> None:
    assert named("one") == "mnist epochs=2"
    begun = head_start._begun["one"]
    asked = check("mnist", store=str(tmp_path))
    run = run_of(asked)
    assert (run.sources, run.hashing) == begun
    assert run.store.root == tmp_path
    assert run.sources.fingerprint(["tasks.fit:fit_model"]) == Sources().fingerprint(["tasks.fit:fit_model"])
    assert run_of(asked).sources is not begun[0]  # a second flow of one id reads anew


def test_a_run_that_never_began_leaves_nothing(named: Named) -> None:
    named("one")
    named("two")
    assert list(head_start._begun) == ["two"]


def test_source_files_that_cannot_be_read_are_the_business_of_whoever_asks(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").symlink_to(tmp_path / "gone")
    sources = head_start.RememberedSources(tmp_path, tmp_path)
    head_start._read(sources)
    with pytest.raises(FileNotFoundError):
        sources.fingerprint(["tasks.a:f"])
