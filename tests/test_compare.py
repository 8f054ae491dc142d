"""The commands `flows.compare` and `flows.report` as they are typed."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import recorded


def command(*arguments: str) -> int:
    """Runs a module as a command in this process; gives its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_module(arguments[0], run_name="__main__")
    return int(end.value.code or 0)


def test_both_commands_need_no_server_and_give_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.server.connected", lambda: pytest.fail("a server was started"))
    store, first, second = recorded.two_runs(tmp_path)

    def last_line() -> Any:
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    assert command("flows.compare", "aaaa", "toy", "--json", f"--store={store.root}") == 0
    assert last_line()["runs"] == [first["run"], second["run"]]
    page = tmp_path / "page.html"
    assert command("flows.report", "toy/champion", f"--out={page}", "--json", f"--store={store.root}") == 0
    assert last_line()["run"] == first["run"]
    assert page.read_text().startswith("<!doctype html>")
    assert command("flows.report", "nothing", f"--store={store.root}") == 2
