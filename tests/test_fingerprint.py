"""The fingerprint changes when code that a stage reaches changes, and only then; above all it never misses a change."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datasets.errors import StoreError
from tasks.fingerprint import BY_VALUE, OWN, ROOT, Sources
from tasks.server import CHECKOUT

WORK = "tasks.a:work"


def project(root: Path, files: dict[str, str]) -> Path:
    for folder in OWN:
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.parent != root:
            (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


def fingerprint(root: Path, *roots: str) -> dict[str, str]:
    return Sources(root).fingerprint(roots or (WORK,))


def edited(root: Path, edit: tuple[str, str, str]) -> None:
    name, old, new = edit
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new, 1))


# What it is about: (files, (file, old, new))
CHANGED: dict[str, tuple[dict[str, str], tuple[str, str, str]]] = {
    "the function itself": (
        {"tasks/a.py": "def work():\n    return 1\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a renamed local variable": (
        {"tasks/a.py": "def work():\n    x = 1\n    return x\n"},
        ("tasks/a.py", "    x = 1\n    return x", "    y = 1\n    return y"),
    ),
    "1 is not True": (
        {"tasks/a.py": "def work():\n    return 1\n"},
        ("tasks/a.py", "return 1", "return True"),
    ),
    "a helper three imports away": (
        {
            "tasks/a.py": "from tasks.b import b\ndef work():\n    return b()\n",
            "tasks/b.py": "from tasks.c import c\ndef b():\n    return c()\n",
            "tasks/c.py": "from datasets.d import d\ndef c():\n    return d()\n",
            "datasets/d.py": "def d():\n    return 1\n",
        },
        ("datasets/d.py", "1", "2"),
    ),
    "a module constant": (
        {"tasks/a.py": "SIZE = 1\ndef work():\n    return SIZE\n"},
        ("tasks/a.py", "SIZE = 1", "SIZE = 7"),
    ),
    "a constant made from a constant": (
        {"tasks/a.py": "ONE = 1\nTWO = ONE + 1\ndef work():\n    return TWO\n"},
        ("tasks/a.py", "ONE = 1", "ONE = 2"),
    ),
    "a constant of several in one statement": (
        {"tasks/a.py": "A, (B, *C) = 1, (2, 3)\ndef work():\n    return C\n"},
        ("tasks/a.py", "3", "4"),
    ),
    "the second of two definitions": (
        {"tasks/a.py": "def f():\n    return 1\ndef f():\n    return 2\ndef work():\n    return f()\n"},
        ("tasks/a.py", "return 2", "return 3"),
    ),
    "a decorator's code": (
        {
            "tasks/a.py": "from tasks.b import twice\n@twice\ndef work():\n    return 1\n",
            "tasks/b.py": "def twice(f):\n    return lambda: 2 * f()\n",
        },
        ("tasks/b.py", "2 *", "3 *"),
    ),
    "an argument of a decorator": (
        {"tasks/a.py": "import functools\n@functools.lru_cache(1)\ndef work():\n    return 1\n"},
        ("tasks/a.py", "(1)", "(2)"),
    ),
    "a default value": (
        {"tasks/a.py": "ONE = 1\ndef work(x=ONE):\n    return x\n"},
        ("tasks/a.py", "ONE = 1", "ONE = 2"),
    ),
    "an annotation": (
        {"tasks/a.py": "from tasks.b import Kind\ndef work(x: Kind):\n    return x\n", "tasks/b.py": "Kind = int\n"},
        ("tasks/b.py", "int", "float"),
    ),
    "a method of a class": (
        {
            "tasks/a.py": "from tasks.b import B\ndef work():\n    return B().go()\n",
            "tasks/b.py": "class B:\n    def go(self):\n        return self.x()\n    def x(self):\n        return 1\n",
        },
        ("tasks/b.py", "return 1", "return 2"),
    ),
    "an inherited method from another module": (
        {
            "tasks/a.py": "from tasks.b import B\ndef work():\n    return B().go()\n",
            "tasks/b.py": "import tasks.c as base\nclass B(base.C):\n    pass\n",
            "tasks/c.py": "class C:\n    def go(self):\n        return 1\n",
        },
        ("tasks/c.py", "return 1", "return 2"),
    ),
    "a dataclass default from a factory": (
        {
            "tasks/a.py": "from tasks.b import B\ndef work():\n    return B()\n",
            "tasks/b.py": (
                "from dataclasses import dataclass, field\nfrom tasks.c import rates\n"
                "@dataclass\nclass B:\n    rates: list = field(default_factory=rates)\n"
            ),
            "tasks/c.py": "def rates():\n    return [1]\n",
        },
        ("tasks/c.py", "[1]", "[2]"),
    ),
    "a class attribute set below the class": (
        {"tasks/a.py": "class A:\n    pass\nA.size = 1\ndef work():\n    return A.size\n"},
        ("tasks/a.py", "size = 1", "size = 2"),
    ),
    "a class attribute set in a module that is imported": (
        {
            "tasks/a.py": "from tasks.b import B\nimport tasks.c\ndef work():\n    return B.size\n",
            "tasks/b.py": "class B:\n    size = 0\n",
            "tasks/c.py": "from tasks import b\nb.B.size = 1\n",
        },
        ("tasks/c.py", "= 1", "= 2"),
    ),
    "import a.b": (
        {
            "tasks/a.py": "import tasks.sub.b\ndef work():\n    return tasks.sub.b.f()\n",
            "tasks/sub/b.py": "def f():\n    return 1\n",
        },
        ("tasks/sub/b.py", "1", "2"),
    ),
    "import a.b as c": (
        {
            "tasks/a.py": "import tasks.sub.b as c\ndef work():\n    return c.f()\n",
            "tasks/sub/b.py": "def f():\n    return 1\n",
        },
        ("tasks/sub/b.py", "1", "2"),
    ),
    "from a import b as c": (
        {
            "tasks/a.py": "from tasks import b as c\ndef work():\n    return c.f()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "from a.b import f as g": (
        {
            "tasks/a.py": "from tasks.b import f as g\ndef work():\n    return g()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a relative import": (
        {
            "tasks/a.py": "from .sub.b import f\ndef work():\n    return f()\n",
            "tasks/sub/b.py": "from .. import c\nfrom . import e\ndef f():\n    return c.g() + e.h()\n",
            "tasks/sub/e.py": "def h():\n    return 1\n",
            "tasks/c.py": "def g():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a relative import of a sibling": (
        {
            "tasks/a.py": "from .sub.b import f\ndef work():\n    return f()\n",
            "tasks/sub/b.py": "from . import e\ndef f():\n    return e.h()\n",
            "tasks/sub/e.py": "def h():\n    return 1\n",
        },
        ("tasks/sub/e.py", "1", "2"),
    ),
    "an import inside a function": (
        {
            "tasks/a.py": "def work():\n    from tasks.b import f\n    return f()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "an import inside a function, used in a nested one": (
        {
            "tasks/a.py": "def work():\n    import tasks.b\n    def g():\n        return [tasks.b.f() for _ in ()]\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "the module's import, where another function imports the same name": (
        {
            "tasks/a.py": (
                "from tasks.b import f\nclass A:\n    def one(self):\n        return f()\n"
                "    def two(self):\n        from tasks.c import f\n        return f()\ndef work():\n    return A()\n"
            ),
            "tasks/b.py": "def f():\n    return 1\n",
            "tasks/c.py": "def f():\n    return 5\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "an import in the body of a class": (
        {
            "tasks/a.py": "class A:\n    from tasks.b import f\ndef work():\n    return A.f\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "an import that a function makes global": (
        {
            "tasks/a.py": (
                "def load():\n    global f\n    from tasks.b import f\ndef work():\n    load()\n    return call()\n"
                "def call():\n    return f()\n"
            ),
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a module handed on as a value": (
        {
            "tasks/a.py": "from tasks import b\ndef work():\n    return getattr(b, 'f' + '')()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a name that such a module imports": (
        {
            "tasks/a.py": "from tasks import b\ndef work():\n    return getattr(b, 'f')()\n",
            "tasks/b.py": "from tasks.c import f\n",
            "tasks/c.py": "def f():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a re-exported name": (
        {
            "tasks/a.py": "from tasks.sub import g\ndef work():\n    return g()\n",
            "tasks/sub/__init__.py": "from .b import f as g\n",
            "tasks/sub/b.py": "def f():\n    return 1\n",
        },
        ("tasks/sub/b.py", "1", "2"),
    ),
    "a re-exported module": (
        {
            "tasks/a.py": "from tasks.c import b\ndef work():\n    return b.f()\n",
            "tasks/c.py": "from tasks import b\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a name that hides the module of the same name": (
        {
            "tasks/a.py": "from tasks.sub import f\ndef work():\n    return f()\n",
            "tasks/sub/__init__.py": "from .f import f\n",
            "tasks/sub/f.py": "from tasks.c import deep\ndef f():\n    return deep()\n",
            "tasks/c.py": "def deep():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "where a name is re-exported from": (
        {
            "tasks/a.py": "from tasks.c import f\nfrom tasks import b\ndef work():\n    return f(), b.one(), b.two()\n",
            "tasks/c.py": "from tasks.b import one as f\n",
            "tasks/b.py": "def one():\n    return 1\ndef two():\n    return 2\n",
        },
        ("tasks/c.py", "one as f", "two as f"),
    ),
    "which of two known helpers a name stands for": (
        {
            "tasks/a.py": "from tasks.b import one as f\nfrom tasks import c\ndef work():\n    return f(), c.both()\n",
            "tasks/b.py": "def one():\n    return 1\ndef two():\n    return 2\n",
            "tasks/c.py": "from tasks.b import one, two\ndef both():\n    return one(), two()\n",
        },
        ("tasks/a.py", "one as f", "two as f"),
    ),
    "another library's name behind the same name": (
        {"tasks/a.py": "from math import floor as f\ndef work():\n    return f(1.5)\n"},
        ("tasks/a.py", "floor", "ceil"),
    ),
    "another library behind the same name": (
        {"tasks/a.py": "import json as j\ndef work():\n    return j.dumps(1)\n"},
        ("tasks/a.py", "json", "marshal"),
    ),
    "the first of two imports in try": (
        {
            "tasks/a.py": (
                "try:\n    from tasks.b import f\nexcept ImportError:\n    from tasks.c import f\n"
                "def work():\n    return f()\n"
            ),
            "tasks/b.py": "def f():\n    return 1\n",
            "tasks/c.py": "def f():\n    return 5\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "an import that stands against a definition": (
        {
            "tasks/a.py": (
                "import sys\nif sys.argv:\n    from tasks.b import f\nelse:\n    def f():\n        return 5\n"
                "def work():\n    return f()\n"
            ),
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a definition that stands against an import": (
        {
            "tasks/a.py": (
                "try:\n    from tasks.b import f\nexcept ImportError:\n    def f():\n        return 5\n"
                "def work():\n    return f()\n"
            ),
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/a.py", "5", "6"),
    ),
    "a name bound in an if": (
        {"tasks/a.py": "import sys\nif sys.argv:\n    SIZE = 1\nelse:\n    SIZE = 2\ndef work():\n    return SIZE\n"},
        ("tasks/a.py", "= 2", "= 3"),
    ),
    "a table's item at the top level": (
        {"tasks/a.py": "TABLE = {}\nTABLE['x'] = 1\ndef work():\n    return TABLE\n"},
        ("tasks/a.py", "= 1", "= 2"),
    ),
    "a table filled by a loop": (
        {"tasks/a.py": "TABLE = {}\nfor n in 'ab':\n    TABLE[n] = 1\ndef work():\n    return TABLE\n"},
        ("tasks/a.py", "= 1", "= 2"),
    ),
    "a table filled by a call": (
        {"tasks/a.py": "TABLE = {}\nTABLE.update(x=1)\ndef work():\n    return TABLE\n"},
        ("tasks/a.py", "x=1", "x=2"),
    ),
    "a table filled by a call whose result has a name": (
        {"tasks/a.py": "TABLE = {}\n_ = TABLE.setdefault('x', 1)\ndef work():\n    return TABLE\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a table of another module, filled by a third": (
        {
            "tasks/a.py": "import tasks.c\nfrom tasks.b import TABLE\ndef work():\n    return TABLE['x']\n",
            "tasks/b.py": "TABLE = {}\n",
            "tasks/c.py": "import tasks.b\ntasks.b.TABLE['x'] = 1\n",
        },
        ("tasks/c.py", "= 1", "= 2"),
    ),
    "a list lengthened in place by a third module": (
        {
            "tasks/a.py": "import tasks.c\nfrom tasks.b import LIST\ndef work():\n    return LIST\n",
            "tasks/b.py": "LIST = []\n",
            "tasks/c.py": "from tasks.b import LIST\nLIST += [1]\n",
        },
        ("tasks/c.py", "[1]", "[2]"),
    ),
    "a function that a decorator registers": (
        {
            "tasks/a.py": "import tasks.c\nfrom tasks.b import TABLE\ndef work():\n    return TABLE['x']()\n",
            "tasks/b.py": "TABLE = {}\ndef put(name):\n    return lambda f: TABLE.setdefault(name, f)\n",
            "tasks/c.py": "from tasks.b import put\n@put('x')\ndef x():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a function that a call registers": (
        {
            "tasks/a.py": "import tasks.c\nfrom tasks.b import TABLE\ndef work():\n    return TABLE['x']()\n",
            "tasks/b.py": "TABLE = {}\ndef put(name, f):\n    TABLE[name] = f\n    return f\n",
            "tasks/c.py": "from tasks.b import put\ndef x():\n    return 1\ny = put('x', x)\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a class that its base registers": (
        {
            "tasks/a.py": "import tasks.c\nfrom tasks.b import B\ndef work():\n    return B.__subclasses__()[0]\n",
            "tasks/b.py": "class B:\n    pass\n",
            "tasks/c.py": "from tasks.b import B\nclass C(B):\n    def go(self):\n        return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a switch thrown on import": (
        {
            "tasks/a.py": "from tasks.b import NAME\ndef work():\n    return 1\n",
            "tasks/b.py": "from tasks import c\nNAME = 1\n",
            "tasks/c.py": "import numpy\nnumpy.seterr(all='raise')\n",
        },
        ("tasks/c.py", "raise", "warn"),
    ),
    "a switch thrown by the package around a module": (
        {
            "tasks/a.py": "from tasks.sub.b import f\ndef work():\n    return f()\n",
            "tasks/sub/__init__.py": "import os\nos.environ['A'] = '1'\n",
            "tasks/sub/b.py": "def f():\n    return 1\n",
        },
        ("tasks/sub/__init__.py", "'1'", "'2'"),
    ),
    "a package's own definition": (
        {
            "tasks/a.py": "import tasks.sub\ndef work():\n    return tasks.sub.SIZE\n",
            "tasks/sub/__init__.py": "SIZE = 1\n",
        },
        ("tasks/sub/__init__.py", "1", "2"),
    ),
    "a module below a folder without __init__": (
        {
            "tasks/a.py": "from tasks.bare import b\ndef work():\n    return b.f()\n",
            "tasks/bare/b.py": "def f():\n    return 1\n",
        },
        ("tasks/bare/b.py", "1", "2"),
    ),
    "a star import": (
        {
            "tasks/a.py": "from tasks.b import *\ndef work():\n    return f()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a star import of an imported name": (
        {
            "tasks/a.py": "from tasks.b import *\ndef work():\n    return f()\n",
            "tasks/b.py": "from tasks.c import f\n",
            "tasks/c.py": "def f():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a name taken through a module's star import": (
        {
            "tasks/a.py": "from tasks.b import f\ndef work():\n    return f()\n",
            "tasks/b.py": "from tasks.c import *\n",
            "tasks/c.py": "def f():\n    return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a global that a reached function sets": (
        {"tasks/a.py": "X = 0\ndef setup():\n    global X\n    X = 1\ndef work():\n    setup()\n    return X\n"},
        ("tasks/a.py", "X = 1", "X = 2"),
    ),
    "an augmented constant": (
        {"tasks/a.py": "X = 0\nX += 1\ndef work():\n    return X\n"},
        ("tasks/a.py", "+= 1", "+= 2"),
    ),
    "a name bound by a walrus": (
        {"tasks/a.py": "Y = [X := 1]\ndef work():\n    return X\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a name bound by match": (
        {"tasks/a.py": "match [1, 2]:\n    case [first, *rest]:\n        pass\ndef work():\n    return first\n"},
        ("tasks/a.py", "[1, 2]", "[2, 2]"),
    ),
    "a name bound by with": (
        {"tasks/a.py": "import io\nwith io.StringIO('1') as f:\n    pass\ndef work():\n    return f\n"},
        ("tasks/a.py", "'1'", "'2'"),
    ),
    "a helper used in match, a lambda and a comprehension": (
        {
            "tasks/a.py": (
                "from tasks.b import f\ndef work(x):\n    match x:\n        case 1:\n"
                "            return lambda: [y for y in (1,) if f(y)]\n"
            ),
            "tasks/b.py": "def f(y):\n    return y > 1\n",
        },
        ("tasks/b.py", "> 1", "> 2"),
    ),
    "a helper behind the result of a call": (
        {
            "tasks/a.py": "from tasks import b\ndef work():\n    return b.make().go().more\n",
            "tasks/b.py": "from tasks.c import C\ndef make():\n    return C()\n",
            "tasks/c.py": "class C:\n    def go(self):\n        return 1\n",
        },
        ("tasks/c.py", "1", "2"),
    ),
    "a name looked up in globals()": (
        {"tasks/a.py": "def f():\n    return 1\ndef work():\n    return globals()['f']()\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a name in a text that is evaluated": (
        {"tasks/a.py": "def f():\n    return 1\ndef work():\n    return eval('f()')\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a module looked up in sys.modules": (
        {"tasks/a.py": "import sys\ndef f():\n    return 1\ndef work():\n    return sys.modules[__name__].f()\n"},
        ("tasks/a.py", "1", "2"),
    ),
    "a module imported by its name": (
        {
            "tasks/a.py": "import importlib\ndef work():\n    return importlib.import_module('tasks.b').f()\n",
            "tasks/b.py": "def f():\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
    "a module's __getattr__": (
        {
            "tasks/a.py": "from tasks import b\ndef work():\n    return b.anything\n",
            "tasks/b.py": "def __getattr__(name):\n    return 1\n",
        },
        ("tasks/b.py", "1", "2"),
    ),
}

SAME: dict[str, tuple[dict[str, str], tuple[str, str, str]]] = {
    "a comment": (
        {"tasks/a.py": "def work():\n    return 1\n"},
        ("tasks/a.py", "return 1", "return 1  # one"),
    ),
    "formatting": (
        {"tasks/a.py": "def work(a, b):\n    return {'a': a, 'b': (b)}\n"},
        ("tasks/a.py", "    return {'a': a, 'b': (b)}", '    return {\n        "a": a,\n        "b": b,\n    }\n\n'),
    ),
    "how imports are grouped": (
        {
            "tasks/a.py": "from tasks.b import f, g\ndef work():\n    return f(), g()\n",
            "tasks/b.py": "def f():\n    return 1\ndef g():\n    return 2\n",
        },
        ("tasks/a.py", "from tasks.b import f, g", "from tasks.b import g\nfrom tasks.b import f"),
    ),
    "docstrings of a function": (
        {"tasks/a.py": 'def work():\n    """One."""\n    return 1\n'},
        ("tasks/a.py", "One.", "Two."),
    ),
    "a docstring that was not there": (
        {"tasks/a.py": "class A:\n    def go(self):\n        pass\ndef work():\n    return A\n"},
        ("tasks/a.py", "        pass", '        """Goes."""'),
    ),
    "docstring of a module": (
        {"tasks/a.py": '"""One."""\ndef work():\n    return 1\n'},
        ("tasks/a.py", "One.", "Two."),
    ),
    "text below a constant": (
        {"tasks/a.py": 'SIZE = 1\n"""Bytes."""\ndef work():\n    return SIZE\n'},
        ("tasks/a.py", "Bytes.", "Bits."),
    ),
    "an unrelated function": (
        {"tasks/a.py": "def work():\n    return 1\ndef other():\n    return 2\n"},
        ("tasks/a.py", "2", "3"),
    ),
    "the order of definitions": (
        {"tasks/a.py": "A = 1\nB = 2\ndef work():\n    return A, B\n"},
        ("tasks/a.py", "A = 1\nB = 2", "B = 2\nA = 1"),
    ),
    "an import that isn't used here": (
        {"tasks/a.py": "import json\ndef work():\n    return 1\ndef other():\n    return json\n"},
        ("tasks/a.py", "import json", "import json, math"),
    ),
    "another function of a module that is used": (
        {
            "tasks/a.py": "import tasks.sub.b\nfrom tasks.sub import b\ndef work():\n    tasks.sub.b.f(), b.f()\n",
            "tasks/sub/b.py": "def f():\n    return 1\ndef g():\n    return 2\n",
        },
        ("tasks/sub/b.py", "2", "3"),
    ),
    "another function of a re-exported module": (
        {
            "tasks/a.py": "from tasks.c import b\ndef work():\n    return b.f()\n",
            "tasks/c.py": "from tasks import b\n",
            "tasks/b.py": "def f():\n    return 1\ndef g():\n    return 2\n",
        },
        ("tasks/b.py", "2", "3"),
    ),
    "a constant made by a call of a class": (
        {
            "tasks/a.py": "from tasks.b import f\ndef work():\n    return f()\n",
            "tasks/b.py": "class Recipe:\n    pass\nRECIPE = Recipe(1)\ndef f():\n    return 1\n",
        },
        ("tasks/b.py", "Recipe(1)", "Recipe(2)"),
    ),
    "what runs as a program only": (
        {"tasks/a.py": "def work():\n    return 1\nif __name__ == '__main__':\n    print(1)\n"},
        ("tasks/a.py", "print(1)", "print(2)"),
    ),
    "infrastructure": (
        {
            "tasks/a.py": "from tasks.artifact import commit\ndef work():\n    return commit()\n",
            "tasks/artifact.py": "def commit():\n    return 1\n",
        },
        ("tasks/artifact.py", "1", "2"),
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_that_is_reached_changes_it(tmp_path: Path, name: str) -> None:
    files, edit = CHANGED[name]
    root = project(tmp_path, files)
    if "without __init__" in name:
        (root / "tasks/bare/__init__.py").unlink()
    before = fingerprint(root)
    edited(root, edit)
    assert fingerprint(root) != before


@pytest.mark.parametrize("name", SAME)
def test_what_decides_no_byte_does_not_change_it(tmp_path: Path, name: str) -> None:
    files, edit = SAME[name]
    root = project(tmp_path, files)
    before = fingerprint(root)
    edited(root, edit)
    assert fingerprint(root) == before


def test_an_unrelated_file_does_not_change_it(tmp_path: Path) -> None:
    root = project(tmp_path, {"tasks/a.py": "def work():\n    return 1\n"})
    before = fingerprint(root)
    (root / "datasets" / "new.py").write_text("DATASET = 1\n")
    assert fingerprint(root) == before


def test_digests_are_by_place_so_that_a_change_can_be_named(tmp_path: Path) -> None:
    files, edit = CHANGED["a helper three imports away"]
    root = project(tmp_path, files)
    before = fingerprint(root)
    assert list(before) == ["datasets.d:d", "tasks.a:work", "tasks.b:b", "tasks.c:c"]
    edited(root, edit)
    after = fingerprint(root)
    assert [at for at in before if before[at] != after[at]] == ["datasets.d:d"]


def test_asking_twice_gives_the_same(tmp_path: Path) -> None:
    root = project(tmp_path, {"tasks/a.py": 'def work():\n    "one"\n    "two"\n    return 1\n'})
    sources = Sources(root)
    assert sources.fingerprint([WORK]) == sources.fingerprint([WORK]) == sources.fingerprint(["tasks.a:*"])


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    root = project(tmp_path, {
        "tasks/a.py": "from tasks import b\nfrom tasks.b import gone\ndef work():\n    return b, gone\n",
        "tasks/b.py": "from tasks import a\nfrom tasks.a import gone\ndef f():\n    return a\n",
    })  # fmt: skip
    assert {"tasks.a:work", "tasks.b:f"} <= set(fingerprint(root))


def test_all_of_a_module(tmp_path: Path) -> None:
    root = project(tmp_path, {"tasks/a.py": "def work():\n    return 1\nX = 1\nprint()\n"})
    assert list(fingerprint(root, "tasks.a:*")) == ["tasks.a:", "tasks.a:X", "tasks.a:work"]


@pytest.mark.parametrize("name", ["tasks.a:gone", "tasks.gone:work", "numpy:array", "tasks.a:work.<locals>.inner"])
def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, {"tasks/a.py": "def work():\n    return 1\n"})
    with pytest.raises(StoreError, match="no such code") as caught:
        fingerprint(root, name)
    assert caught.value.facts["got"] == name


@pytest.mark.parametrize("seed", ["1", "2"])
def test_hash_seed_and_working_directory_do_not_change_it(tmp_path: Path, seed: str) -> None:
    roots = ["tasks.convert:convert_raw", "datasets.mnist:read"]
    script = f"import json; from tasks.fingerprint import Sources; print(json.dumps(Sources().fingerprint({roots})))"
    output = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(CHECKOUT)},
    ).stdout  # fmt: skip
    assert json.loads(output) == Sources().fingerprint(roots)
    assert list(json.loads(output)) == list(Sources().fingerprint(roots))


def test_the_stages_of_this_project_reach_what_they_should() -> None:
    reached = set(Sources(ROOT).fingerprint(["tasks.convert:convert_raw"]))
    assert {"tasks.shard_writer:ShardWriter", "tasks.dealing:deal", "datasets.splits:hashed"} <= reached
    assert not any(at.startswith(("tasks.training:", "tasks.evaluate:", "flows", "datasets.mnist")) for at in reached)
    assert "tasks.step:TrainStep" in Sources(ROOT).fingerprint(["tasks.fit:fit_model"])


@pytest.mark.parametrize("place", sorted(BY_VALUE))
def test_classes_that_count_by_value_do_nothing_but_check(place: str) -> None:
    """A method or property of theirs could decide bytes without being in any key."""
    module, _, name = place.partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    assert {n.name for n in ast.walk(found) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)} <= {
        "__post_init__"
    }
    assert not found.bases
    assert not any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(found))
    assert "__setattr__" not in ast.unparse(found)
