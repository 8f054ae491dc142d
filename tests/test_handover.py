"""The champion changed by hand: to a version, back, refused; always recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from datasets.errors import ArtifactDamaged, ParameterError, StoreError, UnknownNameError
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json
from tasks.handover import hand_over, show
from tasks.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Three versions of mnist, promoted one after the other."""
    registry = Registry(Store(tmp_path), "mnist")
    with registry.lock():
        for accuracy in (0.90, 0.95, 0.97):
            metrics = {"metrics.json": {"accuracy": accuracy, "loss": 1 - accuracy}}
            registry.crown(registry.add(weights(registry.store, f"{accuracy}"), metrics))
    return registry


def weights(store: Store, name: str) -> Artifact:
    def fill(draft: Draft) -> None:
        (draft.folder / "weights.safetensors").write_text(name)
        draft.facts = {"name": name}

    return store.commit("weights", "mnist", f"key-{name}", fill, {})


def call(registry: Registry, version: str | None = None, **options: Any) -> dict[str, Any]:
    return hand_over("mnist", version, store=str(registry.store.root), **options)


def test_a_list_changes_nothing(registry: Registry) -> None:
    before = registry.pointer.read_bytes()
    report = call(registry)
    assert report["champion"] == "v3"
    assert [(row["version"], row["accuracy"], row["champion"]) for row in report["versions"]] == [
        ("v1", 0.90, False), ("v2", 0.95, False), ("v3", 0.97, True),
    ]  # fmt: skip
    assert report["by_hand"] == []
    assert registry.pointer.read_bytes() == before


def test_back_and_forth(registry: Registry) -> None:
    assert call(registry, rollback=True)["champion"] == "v2"
    champion = registry.champion()
    assert champion is not None
    assert (champion.version, registry.store.path(champion.model).name) == ("v2", "v2")
    assert call(registry, rollback=True)["champion"] == "v3"
    report = call(registry, version="v1")
    assert report["champion"] == "v1"
    assert [(row["how"], row["from"], row["to"]) for row in report["by_hand"]] == [
        ("rollback", "v3", "v2"), ("rollback", "v2", "v3"), ("version", "v3", "v1"),
    ]  # fmt: skip
    assert all(row["by"] and row["at"].endswith("Z") for row in report["by_hand"])


def test_what_is_refused(registry: Registry, tmp_path: Path) -> None:
    before = registry.pointer.read_bytes()
    with pytest.raises(UnknownNameError, match="no version 'v9'") as caught:
        call(registry, version="v9")
    assert "v1, v2, v3" in str(caught.value)
    with pytest.raises(ParameterError, match="exclude each other"):
        call(registry, version="v1", rollback=True)
    with pytest.raises(ParameterError, match="exclude each other"):
        call(registry, version="v1", only_list=True)
    with pytest.raises(ParameterError, match="which version gets the name"):
        call(registry, alias="staging")
    with pytest.raises(ParameterError, match="can't be named so"):
        call(registry, version="v1", alias="champion")
    with pytest.raises(UnknownNameError, match="no dataset 'minst'"):
        hand_over("minst", store=str(tmp_path))
    with pytest.raises(StoreError, match="no champion before"):
        hand_over("mnist", rollback=True, store=str(tmp_path / "empty"))
    assert registry.pointer.read_bytes() == before
    assert not (registry.folder / "by-hand.json").exists()


def test_a_damaged_version_is_not_crowned(registry: Registry) -> None:
    (registry.folder / "v1" / "weights.safetensors").write_text("0.91")
    with pytest.raises(ArtifactDamaged):
        call(registry, version="v1")
    (registry.folder / "v2" / "manifest.json").write_text("{}")
    with pytest.raises(ArtifactDamaged, match="version was damaged"):
        call(registry, version="v2")
    assert read_json(registry.pointer)["version"] == "v3"
    assert [row["damaged"] for row in call(registry)["versions"]] == [False, True, False]


def test_a_damaged_champion_can_be_replaced(registry: Registry) -> None:
    (registry.folder / "v3" / "weights.safetensors").unlink()
    assert call(registry, rollback=True)["champion"] == "v2"


def test_the_table_names_the_champion(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    show(call(registry, rollback=True), Console(width=140))
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "95.00%" in line)
    assert "v2" in line
    assert "champion" in line
    assert "rollback, v3 -> v2" in shown


def test_a_name_is_given_and_moved_and_the_champion_stays(registry: Registry) -> None:
    before = registry.pointer.read_bytes()
    report = call(registry, version="v1", alias="staging", by="Ada")
    assert report["names"] == {"champion": "v3", "previous": "v2", "staging": "v1"}
    assert [row["names"] for row in report["versions"]] == [["staging"], ["previous"], ["champion"]]
    report = call(registry, version="previous", alias="staging")
    assert report["names"]["staging"] == "v2"
    assert [(row["by"] == "Ada", row["how"], row["from"], row["to"]) for row in report["by_hand"]] == [
        (True, "alias staging", None, "v1"), (False, "alias staging", "v1", "v2"),
    ]  # fmt: skip
    assert registry.pointer.read_bytes() == before
    assert call(registry, version="staging")["champion"] == "v2"


def test_the_table_names_every_name(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    show(call(registry, version="v2", alias="staging"), Console(width=140))
    line = next(line for line in capsys.readouterr().out.splitlines() if "95.00%" in line)
    assert "previous, staging" in line
