"""Kept fingerprints: the same as found anew, whatever happens to a source file or to the file that keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_fingerprint import WORK, project

from tasks import fingerprint_memory, syntax
from tasks.fingerprint import Sources
from tasks.fingerprint_memory import NAME, RememberedSources

FILES = {
    "tasks/a.py": "from tasks.b import f\n\ndef work():\n    return f()\n",
    "tasks/b.py": "def f():\n    return 1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return project(tmp_path / "project", FILES)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Sources that are parsed from now on."""
    seen: list[bytes] = []
    parse = syntax.parsed
    monkeypatch.setattr("tasks.syntax.parsed", lambda source: seen.append(source) or parse(source))
    return seen


def test_what_is_kept_is_what_is_found_and_nothing_is_parsed_for_it(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Sources(root).fingerprint([WORK])
    assert RememberedSources(store, root).fingerprint([WORK]) == expected
    seen = parsed(monkeypatch)
    assert RememberedSources(store, root).fingerprint([WORK, WORK]) == expected
    assert not seen
    assert RememberedSources(store, root).fingerprint(["tasks.b:f"]) == Sources(root).fingerprint(["tasks.b:f"])
    assert len(json.loads((store / NAME).read_text().splitlines()[1])) == 2


@pytest.mark.parametrize("edit", ["change", "comment", "new file", "shadow", "remove", "rename"])
def test_any_edit_of_any_file_finds_anew(root: Path, store: Path, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    RememberedSources(store, root).fingerprint([WORK])
    helper = root / "tasks" / "b.py"
    match edit:
        case "change":
            helper.write_text("def f():\n    return 2\n")
        case "comment":
            helper.write_text("# why\ndef f():\n    return 1\n")
        case "new file":
            (root / "datasets" / "other.py").write_text("")
        case "shadow":  # a package comes before a module of the same name
            (root / "tasks" / "b").mkdir()
            (root / "tasks" / "b" / "__init__.py").write_text("def f():\n    return 3\n")
        case "remove":
            helper.unlink()
        case "rename":
            helper.rename(root / "tasks" / "c.py")
    seen = parsed(monkeypatch)
    assert RememberedSources(store, root).fingerprint([WORK]) == Sources(root).fingerprint([WORK])
    assert seen


def test_an_edit_and_back_is_right_each_time(root: Path, store: Path) -> None:
    helper = root / "tasks" / "b.py"
    for text in ("def f():\n    return 1\n", "def f():\n    return 2\n", "def f():\n    return 1\n"):
        helper.write_text(text)
        assert RememberedSources(store, root).fingerprint([WORK]) == Sources(root).fingerprint([WORK])


def test_an_edit_while_it_is_looked_at_is_never_kept_under_the_old_text(root: Path, store: Path) -> None:
    before = Sources(root).fingerprint([WORK])
    sources = RememberedSources(store, root)
    sources.fingerprint(["tasks.b:f"])  # reads all files
    text = (root / "tasks" / "a.py").read_text()
    (root / "tasks" / "a.py").write_text(text.replace("f()\n", "f() + 1\n"))
    assert sources.fingerprint([WORK]) == before
    (root / "tasks" / "a.py").write_text(text)
    assert RememberedSources(store, root).fingerprint([WORK]) == before


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"\n{}", b"0" * 64 + b"\n[]", None])
def test_a_damaged_file_costs_only_time(root: Path, store: Path, content: bytes | None) -> None:
    expected = RememberedSources(store, root).fingerprint([WORK])
    if content is None:  # a digest that someone changed
        content = (store / NAME).read_bytes().replace(expected["tasks.b:f"].encode(), b"0" * 16)
        assert b"0" * 16 in content
    (store / NAME).write_bytes(content)
    assert RememberedSources(store, root).fingerprint([WORK]) == expected


def test_another_python_finds_anew(root: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RememberedSources(store, root).fingerprint([WORK])
    seen = parsed(monkeypatch)
    monkeypatch.setattr(fingerprint_memory.sys, "version", "3.99")
    RememberedSources(store, root).fingerprint([WORK])
    assert seen


def test_a_plan_writes_nothing_and_a_full_disk_is_no_trouble(root: Path, store: Path) -> None:
    RememberedSources(store, root, keep=False).fingerprint([WORK])
    assert not store.exists()
    store.write_text("no folder")
    assert RememberedSources(store, root).fingerprint([WORK]) == Sources(root).fingerprint([WORK])
