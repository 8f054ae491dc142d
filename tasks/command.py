"""What every command line shares: numbers read strictly, errors without a wall of text, JSON as the last line."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from rich.console import Console

from datasets.errors import GristmillError, UsageError
from tasks.recipe_changes import assigned


class Command:
    """A command line whose options are the parameters of a function.

    Args:
        name: As in `python -m <name>`.
        about: Shown by --help.
    """

    def __init__(self, name: str, about: str | None) -> None:
        self.parser = _Parser(
            prog=f"python -m {name}", description=about, formatter_class=argparse.RawTextHelpFormatter
        )
        self.parser.add_argument("--json", action="store_true", help="print the result as JSON, as the last line")
        self.parser.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add(self, name: str, *, help: str, text: bool = False) -> None:  # noqa: A002 - argparse's own word
        """Adds an argument; unless it is `text`, what looks like a number becomes one."""
        self.parser.add_argument(name, help=help, type=str if text else number)

    def add_fields(self, name: str, *, dest: str, help: str) -> None:  # noqa: A002
        """Adds an option that may come several times as NAME=VALUE; the function gets a dict as parameter `dest`."""
        self.parser.add_argument(name, dest=dest, help=help, action=_Assign, metavar="NAME=VALUE")

    def add_flag(self, name: str, *, help: str) -> None:  # noqa: A002
        """Adds an option without a value; the function gets True when it is given."""
        self.parser.add_argument(name, help=help, action="store_const", const=True)

    def run(
        self, function: Callable[..., dict[str, Any]], show: Callable[[dict[str, Any], Console], None],
        *, before: Callable[..., object] | None = None, server: bool = True,
    ) -> int:  # fmt: skip
        """Calls `function` with the options that were given and shows its result.

        Args:
            function: Does the work; gets only options that were given.
            show: Prints the result for people.
            before: Called first with the same options, before anything is started.
            server: Whether `function` needs a Prefect server.

        Returns:
            The exit status: 0 when the work is done, 2 for a wrong request, else 1.
        """
        as_json, debug = "--json" in sys.argv, "--debug" in sys.argv
        try:
            options = {k: v for k, v in vars(self.parser.parse_args()).items() if v is not None}
            as_json, debug = options.pop("json"), options.pop("debug")
            if before is not None:
                before(**options)
            result = self._work(function, options, debug) if server else function(**options)
        except GristmillError as error:
            return _report(error, as_json, debug)
        except KeyboardInterrupt:
            print("stopped; the same command goes on where this one was", file=sys.stderr)
            return 130
        if as_json:
            print(json.dumps(result, allow_nan=False), flush=True)
        else:
            show(result, Console())
        return 0

    def _work(self, function: Callable[..., dict[str, Any]], options: dict[str, Any], debug: bool) -> dict[str, Any]:
        from tasks.server import connected

        quieten(debug)
        started = time.perf_counter()
        with connected():
            logging.getLogger("gristmill").info(
                "the Prefect server answers after %.1f s", time.perf_counter() - started
            )
            return function(**options)


class _Assign(argparse.Action):
    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:  # noqa: ANN401
        setattr(namespace, self.dest, assigned(getattr(namespace, self.dest), values))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, cure=f"{self.prog} --help")


def number(text: str) -> int | float | str:
    """3 for "3", 0.5 for "0.5"; text that is no number stays text, for the check of the parameter to refuse."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def quieten(debug: bool) -> None:
    """Keeps Prefect's console for what a person needs; its server still gets every line.

    In a terminal, bars say what goes on, so only warnings are printed. Our own errors are printed once, at the end.
    """
    import prefect.logging.configuration as configuration

    configuration.setup_logging()
    for handler in {*logging.getLogger().handlers, *logging.getLogger("prefect").handlers}:
        if sys.stderr.isatty() and not debug:
            handler.setLevel(logging.WARNING)
        if not debug:
            handler.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, GristmillError) and "Finished in state Failed" not in record.getMessage()


def _report(error: GristmillError, as_json: bool, debug: bool) -> int:
    if debug:
        logging.getLogger("gristmill").exception("this is where it was raised")
    print(f"error: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
    return error.exit_status
