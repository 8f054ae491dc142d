"""The command line: strict numbers, short errors, JSON as the last line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from datasets.errors import ParameterError, SchemaError
from tasks.command import Command, number
from tasks.server import CHECKOUT


def call(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: Callable[..., dict[str, Any]], **options: Any
) -> int:
    monkeypatch.setattr(sys, "argv", ["x", *arguments])
    monkeypatch.setattr(Command, "_work", lambda self, function, options, debug: function(**options))
    command = Command("flows.x", "About.")
    command.add("dataset", help="name")
    command.add("--epochs", help="passes")
    command.add("--store", help="folder", text=True)
    return command.run(function, lambda result, console: console.print("shown", result["dataset"]), **options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-3", -3), ("0.5", 0.5), ("1e-3", 1e-3), ("3.0", 3.0), ("1.10", 1.1), ("true", "true"),
        ("", ""), ("3 4", "3 4"), ("0x10", "0x10"), ("inf", float("inf")), ("mnist", "mnist"),
    ],
)  # fmt: skip
def test_what_looks_like_a_number_is_one(text: str, value: object) -> None:
    got = number(text)
    assert (type(got), got) == (type(value), value)


def test_only_options_that_were_given_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[dict[str, Any]] = []

    def work(**options: Any) -> dict[str, Any]:
        seen.append(options)
        return options

    assert call(monkeypatch, ["mnist", "--epochs", "3"], work) == 0
    assert call(monkeypatch, ["mnist", "--store", "007", "--json"], work, before=work) == 0
    assert seen == [{"dataset": "mnist", "epochs": 3}, *[{"dataset": "mnist", "store": "007"}] * 2]
    out = capsys.readouterr().out.splitlines()
    assert out == ["shown mnist", '{"dataset": "mnist", "store": "007"}']


@pytest.mark.parametrize(
    ("error", "status"), [(ParameterError("bad", got=3), 2), (SchemaError("bad", row=3, cure="mend it"), 1)]
)
@pytest.mark.parametrize("arguments", [[], ["--json"], ["--debug"], ["--json", "--debug"]])
def test_a_typed_error_is_one_short_message_and_a_json_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: pytest.LogCaptureFixture,
    error: Exception, status: int, arguments: list[str],
) -> None:  # fmt: skip
    def work(**options: Any) -> dict[str, Any]:
        raise error

    assert call(monkeypatch, ["mnist", *arguments], work) == status
    out, err = capsys.readouterr()
    assert f"error: {error}\n" in err
    expected = {"error": type(error).__name__, "message": str(error)}
    assert [json.loads(line) for line in out.splitlines()] == ([expected] if "--json" in arguments else [])
    assert [bool(record.exc_info) for record in said.records] == ([True] if "--debug" in arguments else [])


@pytest.mark.parametrize("arguments", [[], ["mnist", "--epoch-count", "3"], ["mnist", "more"], ["mnist", "--epochs"]])
def test_wrong_usage_ends_with_status_2_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    def work(**options: Any) -> dict[str, Any]:
        raise AssertionError("started")

    assert call(monkeypatch, [*arguments, "--json"], work, before=work) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "UsageError"
    assert "cure: python -m flows.x --help" in err


def test_what_is_checked_before_comes_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(**options: Any) -> dict[str, Any]:
        raise AssertionError("started")

    def refuse(**options: Any) -> None:
        raise ParameterError("no")

    assert call(monkeypatch, ["mnist"], work, before=refuse) == 2
    assert capsys.readouterr().err == "error: no\n"


def test_an_interrupt_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def work(**options: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    assert call(monkeypatch, ["mnist"], work) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_result_that_json_has_not_is_not_printed_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        call(monkeypatch, ["mnist", "--json"], lambda **options: {"loss": float("nan")})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["mnits", "--epochs", "3"], "UnknownNameError", "did you mean mnist"),
        (["3"], "UnknownNameError", "there is no dataset"),
        (["mnist", "--learning-rate", "nan"], "ParameterError", "learning_rate can't be nan"),
    ],
)
def test_the_real_command_fails_shortly(arguments: list[str], error: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.train", *arguments, "--json"], cwd=CHECKOUT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["error"] == error
    assert message in said["message"]
    assert "Traceback" not in done.stderr + done.stdout
    assert "Prefect" not in done.stderr
