from __future__ import annotations

import json
from pathlib import Path

import pytest

from datasets.errors import ArtifactDamaged, ParameterError, StoreError, UnknownNameError
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json
from tasks.lock import Lock
from tasks.registry import Registry, made


def weights(store: Store, name: str) -> Artifact:
    def fill(draft: Draft) -> None:
        (draft.folder / "weights.safetensors").write_text(f"weights {name}")
        (draft.folder / "model.json").write_text("{}")
        draft.facts = {"name": name}

    return store.commit("weights", "toy", f"key-{name}", fill, {})


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(Store(tmp_path), "toy")
    made.lock().path.touch()
    return made


def add(registry: Registry, name: str) -> Artifact:
    return registry.add(weights(registry.store, name), {"metrics.json": {"accuracy": 0.5}})


def test_nothing_was_ever_promoted(registry: Registry) -> None:
    assert registry.champion() is None
    assert registry.versions() == []


def test_a_version_holds_the_weights_and_where_they_came_from(registry: Registry) -> None:
    made = add(registry, "a")
    folder, original = registry.store.path(made), weights(registry.store, "a")
    assert (made.kind, made.dataset, made.key) == ("models", "toy", "v1")
    assert folder == registry.folder / "v1"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "metrics.json", "model.json", "training.json", "weights.safetensors",
    ]  # fmt: skip
    assert (folder / "weights.safetensors").read_text() == "weights a"
    assert read_json(folder / "training.json")["digest"] == original.digest
    assert read_json(folder / "metrics.json") == {"accuracy": 0.5}
    assert registry.store.facts(made) == {"weights": original.digest, "version": "v1"}
    registry.store.verify(made)
    registry.store.verify(original)


def test_files_are_json_or_bytes(registry: Registry) -> None:
    assert registry.next() == "v1"
    made = registry.add(weights(registry.store, "a"), {"card.md": b"# caf\xc3\xa9\n", "decision.json": ["x"]})
    folder = registry.store.path(made)
    assert (folder / "card.md").read_bytes() == b"# caf\xc3\xa9\n"
    assert read_json(folder / "decision.json") == ["x"]
    assert registry.next() == "v2"


def test_versions_are_counted_and_the_same_weights_keep_theirs(registry: Registry) -> None:
    first = add(registry, "a")
    assert [add(registry, name).key for name in "bcdefghij"] == [f"v{i}" for i in range(2, 11)]
    assert add(registry, "a") == first
    assert registry.versions() == [f"v{i}" for i in range(1, 11)]
    assert add(registry, "k").key == "v11"


def test_a_damaged_version_is_left_as_it_is_and_a_sound_one_made(registry: Registry) -> None:
    first = add(registry, "a")
    path = registry.store.path(first) / "weights.safetensors"
    path.write_text("weights X")
    second = add(registry, "a")
    assert second.key == "v2"
    assert path.read_text() == "weights X"
    registry.store.verify(second)


def test_champions_follow_each_other(registry: Registry) -> None:
    a, b, c = (add(registry, name) for name in "abc")
    digests = [weights(registry.store, name).digest for name in "abc"]
    assert registry.crown(a).previous is None
    assert registry.crown(b).previous == digests[0]
    third = registry.crown(c)
    assert (third.version, third.weights, third.previous) == ("v3", digests[2], digests[1])
    assert registry.champion() == third
    again = registry.crown(c)  # as after a crash: who was before it stays known
    assert again == third
    back = registry.crown(a)
    assert (back.version, back.weights, back.previous) == ("v1", digests[0], digests[2])


def test_only_what_is_there_can_be_crowned(registry: Registry) -> None:
    made = add(registry, "a")
    registry.crown(made)
    before = registry.pointer.read_bytes()
    with pytest.raises(StoreError, match="no such version") as caught:
        registry.crown(Artifact("models", "toy", "v7", made.digest))
    assert caught.value.facts == {"got": "v7", "known": "v1"}
    broken = add(registry, "b")
    (registry.store.path(broken) / "weights.safetensors").write_text("weights X")
    with pytest.raises(ArtifactDamaged, match="edited"):
        registry.crown(broken)
    assert registry.pointer.read_bytes() == before


@pytest.mark.parametrize("damage", ["edited", "missing", "gone"])
def test_a_damaged_champion_is_an_error_and_can_be_replaced_by_hand(registry: Registry, damage: str) -> None:
    a, b = add(registry, "a"), add(registry, "b")
    registry.crown(a)
    registry.crown(b)
    path = registry.store.path(b) / "weights.safetensors"
    if damage == "edited":
        path.write_text("weights X")
    elif damage == "missing":
        path.unlink()
    else:
        registry.store.path(b).rename(registry.folder / "aside")
    before = registry.pointer.read_bytes()
    with pytest.raises(ArtifactDamaged) as caught:
        registry.champion()
    assert str(registry.store.path(b)) in str(caught.value)
    assert registry.pointer.read_bytes() == before
    assert registry.crown(a).version == "v1"
    assert registry.champion() is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"version": "v1"}', '{"model": {"kind": 1}}'])
def test_a_damaged_pointer_is_an_error_that_names_it(registry: Registry, content: str) -> None:
    registry.crown(add(registry, "a"))
    registry.pointer.write_text(content)
    with pytest.raises(ArtifactDamaged) as caught:
        registry.champion()
    assert caught.value.facts["file"] == registry.pointer
    assert registry.pointer.read_text() == content


def test_the_pointer_is_json_that_others_can_read(registry: Registry) -> None:
    made = add(registry, "a")
    registry.crown(made)
    assert json.loads(registry.pointer.read_text()) == {
        "version": "v1", "model": made.to_json(), "weights": weights(registry.store, "a").digest, "previous": None,
    }  # fmt: skip


def test_one_process_at_a_time_changes_it(registry: Registry) -> None:
    with registry.lock():
        assert not Lock(registry.lock().path).acquire(blocking=False)
    assert registry.versions() == []


def test_datasets_have_registries_of_their_own(registry: Registry) -> None:
    registry.crown(add(registry, "a"))
    assert Registry(registry.store, "other").champion() is None


# --------------------------------------------------------------------------------------------------------------- names


def test_every_name_finds_its_version(registry: Registry) -> None:
    a, b, c = (add(registry, name) for name in "abc")
    with pytest.raises(UnknownNameError, match="no version 'champion'"):
        registry.find("champion")
    registry.crown(a)
    assert registry.previous() is None
    registry.crown(b)
    registry.name("staging", c)
    registry.name("tested", a)
    found = {name: registry.find(name) for name in ("v1", "v3", "champion", "previous", "staging", "tested")}
    assert found == {"v1": a, "v3": c, "champion": b, "previous": a, "staging": c, "tested": a}
    registry.name("staging", a)
    assert registry.aliases() == {"staging": "v1", "tested": "v1"}
    with pytest.raises(UnknownNameError, match="did you mean staging"):
        registry.find("stagin")


@pytest.mark.parametrize("alias", ["champion", "previous", "v3", "", "../x", "Staging", "a b", "-x", "x" * 41])
def test_names_that_are_taken_or_none(registry: Registry, alias: str) -> None:
    with pytest.raises(ParameterError, match="can't be named so"):
        registry.name(alias, add(registry, "a"))
    assert registry.aliases() == {}


def test_a_damaged_version_gets_no_name(registry: Registry) -> None:
    broken = add(registry, "a")
    (registry.store.path(broken) / "weights.safetensors").write_text("weights X")
    with pytest.raises(ArtifactDamaged):
        registry.name("staging", broken)
    assert registry.aliases() == {}


@pytest.mark.parametrize("content", ["[]", "{", '{"staging": 3}'])
def test_damaged_names_are_an_error_that_names_the_file(registry: Registry, content: str) -> None:
    add(registry, "a")
    (registry.folder / "aliases.json").write_text(content)
    with pytest.raises(ArtifactDamaged) as caught:
        registry.find("v1")
    assert caught.value.facts["file"] == registry.folder / "aliases.json"


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
@pytest.mark.parametrize("what", ["champion", "staging"])
def test_a_crash_leaves_the_old_or_the_new(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, moment: str, what: str
) -> None:
    old, new = add(registry, "a"), add(registry, "b")

    def move(model: Artifact) -> None:
        registry.crown(model) if what == "champion" else registry.name("staging", model)

    def kill(*args: object) -> None:
        raise KeyboardInterrupt

    move(old)
    with monkeypatch.context() as patch:
        if moment == "before the rename":
            patch.setattr(Path, "replace", kill)
        else:
            patch.setattr("tasks.durable.fsync_dir", kill)
        with pytest.raises(KeyboardInterrupt):
            move(new)
    assert registry.find(what) == (old if moment == "before the rename" else new)
    move(new)
    assert registry.find(what) == new
    assert not [path.name for path in registry.folder.iterdir() if path.name.endswith(".tmp")]


def test_an_artifact_is_found_by_its_content(registry: Registry) -> None:
    first, second = weights(registry.store, "a"), weights(registry.store, "b")
    assert made(registry.store, "weights", "toy", second.digest) == second
    assert made(registry.store, "weights", "toy", first.digest) == first
    assert made(registry.store, "weights", "toy", "0" * 64) is None
    assert made(registry.store, "weights", "toy", None) is None
    assert made(registry.store, "weights", "other", first.digest) is None
