"""From values to JSON that is equal exactly when the values mean the same: the parameters in a stage's key."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

from datasets.errors import ParameterError
from tasks.fingerprint import OWN

TAGS = frozenset({"float", "partial", "method", "function", "class", "mapping"})
"""Keys that say what a JSON object stands for; a mapping with one of them is wrapped, so that no two look alike."""


def canonical(value: Any, code: set[str], at: str = "") -> Any:  # noqa: ANN401
    """JSON for a value.

    Args:
        value: Numbers, text, None, tuples, lists (which equal tuples), mappings with text keys, dataclasses,
            functions, bound methods of dataclasses, partials. 1 and 1.0 and True differ. A function stands for the
            code that it reaches and the values that it closes over, so that two functions from one factory differ.
        code: Gets the "module:name" of each function and class met, for `Sources.fingerprint`.
        at: What the value is called in an error.

    Raises:
        ParameterError: The value can't be part of a key: a path, a set, an open file, a lock ...; it is named.
    """
    try:
        return _encoded(value, code, at)
    except RecursionError:
        raise ParameterError("a value that holds itself can't be part of a cache key", parameter=at or None) from None


def plain(value: Any) -> Any:  # noqa: ANN401
    """What `canonical` gave, as people write it: floats as numbers, an object by its class's name and its fields."""
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float.fromhex(value["float"])
        fields = {name: plain(each) for name, each in value.items() if name != "class"}
        kind = value.get("class", "").rpartition(":")[2]
        return {kind: fields} if kind else fields
    return [plain(each) for each in value] if isinstance(value, list) else value


def _encoded(value: Any, code: set[str], at: str) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        items = {_text(key, at): value[key] for key in value}
        encoded = {key: _encoded(items[key], code, f"{at}.{key}".lstrip(".")) for key in sorted(items)}
        return {"mapping": encoded} if TAGS & set(items) else encoded
    if isinstance(value, tuple | list):
        return [_encoded(item, code, f"{at}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, functools.partial):
        return {"partial": _encoded([value.func, value.args, value.keywords], code, at)}
    if isinstance(value, types.MethodType):
        return {"method": _function(value.__func__, code, at), "of": _encoded(value.__self__, code, at)}
    if isinstance(value, types.FunctionType):
        return _function(value, code, at)
    if is_dataclass(value) and not isinstance(value, type):
        _reach(value.__class__.__module__, value.__class__.__qualname__, code)
        values = {f.name: getattr(value, f.name) for f in fields(value)}
        encoded = {name: _encoded(values[name], code, f"{at}.{name}".lstrip(".")) for name in values}
        return {"class": f"{value.__class__.__module__}:{value.__class__.__qualname__}", **encoded}
    kind = "a path" if isinstance(value, PurePath) else type(value).__name__
    raise ParameterError(
        f"{kind} can't be part of a cache key", parameter=at or None, got=repr(value)[:200],
        expected="numbers, text, tuples, mappings, frozen dataclasses, functions",
    )  # fmt: skip


def _function(value: types.FunctionType, code: set[str], at: str) -> Any:  # noqa: ANN401
    own = _reach(value.__module__, value.__qualname__, code)
    # functools.wraps gives a wrapper the name of what it wraps; the code that runs is where its own code object says
    own &= _reach(value.__globals__.get("__name__"), value.__code__.co_qualname, code)
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    closed = {name: cell.cell_contents for name, cell in cells if name != "__class__"}
    return {
        "function": f"{value.__module__}:{value.__qualname__}",
        "closure": {
            name: _encoded(closed[name], code, f"{at}, closed over: {name}")
            for name in sorted(closed)
            if closed[name] is not value
        },
        "defaults": _encoded([value.__defaults__, value.__kwdefaults__], code, f"{at}, a default"),
        # Two lambdas on one line have one name: what they do counts.
        "bytecode": _bytecode(value.__code__) if not own or "<lambda>" in value.__qualname__ else None,
        # No syntax tree is followed outside this project: all of the function's file counts.
        "source": None if own else _file_digest(Path(value.__code__.co_filename)),
    }


def _reach(module: str | None, name: str, code: set[str]) -> bool:
    """Adds the top-level definition that holds `name` (all of the module for a lambda) if it is in this project."""
    own = module is not None and module.split(".")[0] in OWN
    if own:
        outer = name.split(".")[0]
        code.add(f"{module}:{'*' if outer == '<lambda>' else outer}")
    return own


def _bytecode(code: types.CodeType) -> list[Any]:
    return [code.co_code.hex(), [_constant(one) for one in code.co_consts], list(code.co_names)]


def _constant(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, types.CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):  # `x in {"a", "b"}`; its order depends on PYTHONHASHSEED
        return sorted(map(repr, value))
    return repr(value)


def _file_digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _text(key: object, at: str) -> str:
    if not isinstance(key, str):
        raise ParameterError(
            "only text can be the key of a mapping in a cache key", parameter=at or None, got=repr(key)
        )
    return key
