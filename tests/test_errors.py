"""Errors say what, where and how to cure it, also on the other side of a process border."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from datasets import errors
from datasets.errors import DataError, GristmillError, ParameterError, SchemaError, UnknownNameError, UsageError

TREE = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, GristmillError)]


def test_a_message_has_its_facts_a_line_each_and_the_cure_last() -> None:
    error = SchemaError("label out of range", file="a.idx", row=0, got=None, expected="0 ... 9", cure="mend the file")
    assert str(error) == "label out of range\n  file: a.idx\n  row: 0\n  expected: 0 ... 9\n  cure: mend the file"
    assert str(SchemaError("alone")) == "alone"


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_errors_cross_process_borders_whole(kind: type[GristmillError]) -> None:
    error = kind("what", cure="cure", row=3)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (back.what, back.facts, back.cure, str(back)) == ("what", {"row": 3}, "cure", str(error))


def test_the_drawn_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ([| `-]*)([A-Z]\w+)", line):
            above[len(found[1]) // 4 :] = [found[2]]
            drawn[found[2]] = above[-2] if len(above) > 1 else "Exception"
    assert drawn == {kind.__name__: kind.__mro__[1].__name__ for kind in TREE}


def test_only_a_wrong_request_ends_with_status_2() -> None:
    assert {kind for kind in TREE if kind.exit_status == 2} == {UsageError, UnknownNameError, ParameterError}
    assert {kind.exit_status for kind in TREE} == {1, 2}
    assert not issubclass(DataError, UsageError)


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    error = UnknownNameError.among("dataset", "fashon", ["mnist", "fashion_mnist", "fashion"])
    assert error.what == "there is no dataset 'fashon'"
    assert error.cure == "did you mean fashion or fashion_mnist?"
    assert error.facts["known"] == "fashion, fashion_mnist, mnist"
    assert UnknownNameError.among("dataset", "zzz", ["mnist"]).cure is None


@pytest.mark.parametrize("name", [3, None, True, 1.5])
def test_a_name_that_is_no_text_is_unknown_too(name: object) -> None:
    assert UnknownNameError.among("dataset", name, ["mnist"]).what == f"there is no dataset {name!r}"
