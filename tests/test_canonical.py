"""Values in a key: equal exactly when they mean the same, refused by name when they can't be compared."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.errors import ParameterError
from datasets.schema import Feature, Recipe, Rows, check_int
from tasks.canonical import canonical
from tasks.fingerprint import Sources
from tasks.server import CHECKOUT


def encoded(value: Any) -> str:
    """Text as it goes into the hash, and the code beside it."""
    code: set[str] = set()
    return json.dumps([canonical(value, code), sorted(code)], sort_keys=True, allow_nan=False)


def scaler(factor: float, offsets: tuple[int, ...] = ()) -> Callable[[float], float]:
    def scale(x: float) -> float:
        return x * factor + sum(offsets)

    return scale


@dataclass(frozen=True)
class Shift:
    pixels: int = 1

    def __call__(self, x: int) -> int:
        return x + self.pixels

    def back(self, x: int) -> int:
        return x - self.pixels


@dataclass(frozen=True)
class Turn:
    pixels: int = 1


def same_fields(name: str, value: str) -> Any:
    return make_dataclass(name, ["type", "name"])(value, "n")


DIFFERENT: dict[str, list[Any]] = {
    "numbers": [0, 1, 1.0, True, False, "1", None, 0.0, -0.0, math.nan, math.inf, -math.inf, 0.1 + 0.2, 0.3, 10**30],
    "sequences": [[], [1], [1, 2], [2, 1], [[1], 2], [[1, 2]], [[]], ""],
    "mappings": [{}, {"a": 1}, {"a": 1.0}, {"a": [1]}, {"b": 1}, {"a": {}}, [["a", 1]]],
    "what stands for a float": [1.5, {"float": (1.5).hex()}, {"mapping": {"float": (1.5).hex()}}],
    "what stands for a dataclass": [
        Shift(3),
        Shift(4),
        Turn(3),
        {"class": f"{__name__}:Shift", "pixels": 3},
        {"pixels": 3},
    ],
    "a field that is called type": [same_fields("A", "x"), same_fields("B", "x")],
    "closures of one factory": [scaler(2.0), scaler(3.0), scaler(2), scaler(2.0, (1,))],
    "partials": [
        functools.partial(check_int, "a"),
        functools.partial(check_int, "b"),
        functools.partial(check_int, least=1),
        functools.partial(check_int, least=2),
        check_int,
    ],
    "methods": [Shift(1).back, Shift(2).back, Shift(1).__call__, Shift.back],
    "lambdas on one line": [lambda x: x + 1, lambda x: x + 2, lambda x: x - 1, lambda x: abs(x), lambda x: x in {1, 2}],
    "defaults of lambdas": [lambda x=1: x, lambda x=2: x, lambda *, x=1: x, lambda *, x=2: x],
    "functions of another library": [json.dumps, json.loads],
}

EQUAL: dict[str, tuple[Any, Any]] = {
    "the order of keys": ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
    "tuples and lists, since JSON has only one": ((1, (2, [3])), [1, [2, (3,)]]),
    "NaN and NaN": (math.nan, float("nan")),
    "a float and the same float of NumPy": (0.1, np.float64(0.1)),
    "a mapping and a view of it": ({"a": 1}, types.MappingProxyType({"a": 1})),
    "dataclasses": (Recipe(), Recipe(epochs=5)),
    "closures over equal values": (scaler(2.0, (1,)), scaler(2.0, (1,))),
    "partials": (functools.partial(check_int, "a", least=1), functools.partial(check_int, "a", least=1)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_values_that_differ_stay_different(name: str) -> None:
    texts = [encoded(value) for value in DIFFERENT[name]]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", EQUAL)
def test_values_that_mean_the_same_are_equal(name: str) -> None:
    one, other = EQUAL[name]
    assert encoded(one) == encoded(other)


def test_code_of_functions_and_classes_is_named() -> None:
    code: set[str] = set()
    canonical({"a": Rows(0, 1), "b": [Feature("uint8")], "c": functools.partial(check_int, "x"), "d": Shift()}, code)
    assert code == {"datasets.splits:Rows", "datasets.feature:Feature", "datasets.checks:check_int"}
    canonical(Recipe().__post_init__, code)
    assert "datasets.recipe:Recipe" in code


def loaded(tmp_path: Path, name: str, text: str) -> types.ModuleType:
    """A module as if it were a file of this project."""
    path = tmp_path / "project" / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def test_all_of_a_module_counts_for_its_lambdas(tmp_path: Path) -> None:
    module = loaded(tmp_path, "datasets.made", "READ = lambda raw: raw\nclass A:\n    f = lambda self: 1\n")
    code: set[str] = set()
    canonical([module.READ, module.A.f], code)
    assert code == {"datasets.made:*", "datasets.made:A"}


def test_a_wrapper_with_a_borrowed_name_stands_for_its_own_code_too(tmp_path: Path) -> None:
    wrap = loaded(
        tmp_path, "tasks.wrap",
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(x):\n        f(f(x))\n    return g\n",
    )  # fmt: skip
    made = loaded(tmp_path, "datasets.made", "def f(x):\n    return x + 1\n")
    code: set[str] = set()
    canonical(wrap.twice(made.f), code)
    assert code == {"datasets.made:f", "tasks.wrap:twice"}
    assert encoded(wrap.twice(made.f)) != encoded(made.f)


def test_changed_code_of_a_class_changes_the_fingerprint_beside_the_value(tmp_path: Path) -> None:
    text = (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n    def go(self):\n        return 1\n"
    )
    prints = []
    for version in (text, text.replace("return 1", "return 2")):
        code: set[str] = set()
        canonical(loaded(tmp_path, "datasets.made", version).A(), code)
        prints.append(Sources(tmp_path / "project").fingerprint(code))
    assert prints[0] != prints[1]


def test_a_helper_in_the_file_of_a_function_outside_the_project_counts(tmp_path: Path) -> None:
    text = "def helper():\n    return 1\ndef read():\n    return helper()\n"
    one = encoded(loaded(tmp_path, "elsewhere", text).read)
    assert encoded(loaded(tmp_path, "elsewhere", text).read) == one
    assert encoded(loaded(tmp_path, "elsewhere", text.replace("return 1", "return 2")).read) != one


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_hash_seed_changes_nothing(seed: str) -> None:
    script = (
        "import json; from tasks.canonical import canonical\n"
        "value = {'f': lambda x: x in {'a', 'b', 'c', 'd', 'e'}, 'z': 1, 'y': 2}\n"
        "print(json.dumps(canonical(value, set())))"
    )

    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, capture_output=True, text=True).stdout

    assert run(seed) == run("0")


class Plain:
    pass


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({1, 2}, "set"),
        (frozenset({1}), "frozenset"),
        (Path("a"), "a path"),
        (threading.Lock(), "lock"),
        (b"bytes", "bytes"),
        (object(), "object"),
        (Plain(), "Plain"),
        (Plain, "type"),
        (Shift, "type"),
        (np.arange(3), "ndarray"),
        (np.int64(3), "int64"),
        (len, "builtin_function_or_method"),
        (range(3), "range"),
        (1j, "complex"),
    ],
)
def test_what_can_not_be_compared_is_refused_by_its_kind(value: Any, kind: str) -> None:
    with pytest.raises(ParameterError) as caught:
        canonical({"recipe": {"augment": (1, value)}}, set())
    assert caught.value.what == f"{kind} can't be part of a cache key"
    assert caught.value.facts["parameter"] == "recipe.augment[1]"


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as file, pytest.raises(ParameterError, match="TextIOWrapper can't be part"):
        canonical(file, set())


def test_what_hides_in_a_dataclass_a_closure_a_default_or_a_partial_is_refused() -> None:
    @dataclass
    class Holds:
        inside: Any = field(default_factory=set)

    def default(x: Any = Path("a")) -> Any:
        return x

    for value, kind, where in [
        (Holds(), "set", "v.inside"),
        (scaler({1}), "set", "v, closed over: factor"),  # type: ignore[arg-type]
        (default, "a path", "v, a default"),
        (functools.partial(encoded, Path("a")), "a path", "v"),
    ]:
        with pytest.raises(ParameterError, match=f"{kind} can't be part") as caught:
            canonical({"v": value}, set())
        assert caught.value.facts["parameter"].startswith(where)


def test_only_text_is_a_key_of_a_mapping() -> None:
    with pytest.raises(ParameterError, match="only text") as caught:
        canonical({"a": {1: 2}}, set())
    assert caught.value.facts == {"parameter": "a", "got": "1"}


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ParameterError, match="holds itself"):
        canonical(value, set())


def test_a_function_that_calls_itself_is_no_circle() -> None:
    def factory(start: int) -> Callable[[int], int]:
        def down(n: int) -> int:
            return down(n - 1) if n else start

        return down

    assert encoded(factory(1)) == encoded(factory(1)) != encoded(factory(2))
