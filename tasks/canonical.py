"""From values to JSON that is equal exactly when the values mean the same: the parameters in a stage's key."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

from datasets.errors import ParameterError
from tasks.fingerprint import OWN


def canonical(value: Any, code: set[str]) -> Any:  # noqa: ANN401
    """JSON for a value.

    Args:
        value: Numbers, text, None, tuples, lists, mappings with text keys, dataclasses, functions, partials.
            1 and 1.0 and True differ. A function stands for the code that it reaches and the values that it
            closes over, so that two functions from one factory differ.
        code: Gets the "module:name" of each function and class met, for `Sources.fingerprint`.

    Raises:
        ParameterError: The value can't be part of a key: a path, a set, an open file, a lock ...
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        return {_text(key): canonical(value[key], code) for key in sorted(value, key=_text)}
    if isinstance(value, tuple | list):
        return [canonical(item, code) for item in value]
    if isinstance(value, functools.partial):
        return {"partial": [canonical(value.func, code), canonical(value.args, code), canonical(value.keywords, code)]}
    if isinstance(value, types.MethodType):
        return {"method": value.__func__.__name__, "of": canonical(value.__self__, code)}
    if isinstance(value, types.FunctionType):
        return _function(value, code)
    if is_dataclass(value) and not isinstance(value, type):
        _reach(type(value), code)
        return {"type": _where(type(value)), **{f.name: canonical(getattr(value, f.name), code) for f in fields(value)}}
    kind = "a path" if isinstance(value, PurePath) else type(value).__name__
    raise ParameterError(
        f"{kind} can't be part of a cache key", got=repr(value)[:200],
        expected="numbers, text, tuples, mappings, frozen dataclasses, functions",
    )  # fmt: skip


def _function(value: types.FunctionType, code: set[str]) -> Any:  # noqa: ANN401
    own = _reach(value, code)
    closed = inspect.getclosurevars(value).nonlocals
    return {
        "function": _where(value),
        "name": value.__qualname__,
        "closure": {name: canonical(closed[name], code) for name in sorted(closed) if closed[name] is not value},
        "defaults": canonical([value.__defaults__, value.__kwdefaults__], code),
        # Another library's function has no source here, and two lambdas on one line have one name: what they do counts.
        "bytecode": _bytecode(value.__code__) if not own or "<lambda>" in value.__qualname__ else None,
    }


def _where(value: type | types.FunctionType) -> str:
    """The top-level definition that holds a function or class; all of the module for a lambda."""
    name = value.__qualname__.split(".")[0]
    return f"{value.__module__}:*" if name == "<lambda>" else f"{value.__module__}:{name}"


def _reach(value: type | types.FunctionType, code: set[str]) -> bool:
    """Adds where `value` is defined to `code` if that is in this project."""
    own = value.__module__.split(".")[0] in OWN
    if own:
        code.add(_where(value))
    return own


def _bytecode(code: types.CodeType) -> list[Any]:
    constants = [_bytecode(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise ParameterError("only text can be the key of a mapping in a cache key", got=repr(key))
    return key
