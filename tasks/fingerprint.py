"""What code a function can reach: every definition of this project that it uses, followed through names and imports.

The unit is the top-level definition (function, class, constant), read from the syntax tree, without importing anything.
Comments, formatting and docstrings don't count; a helper three imports away does. Where a name can't be followed
exactly, the whole module counts: too much is a needless run, too little would be stale output. What a module runs on
import counts with everything in it, and so does what the modules that it imports run, because that may change
any state. A name that is put together at run time (`import_module(f"...{name}")`) can't be followed: a stage names
such code itself.

Modules under INFRASTRUCTURE move, name and show bytes but don't decide them, so they don't count.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from datasets.errors import StoreError
from tasks import syntax
from tasks.durable import entries_below

ROOT = Path(__file__).parent.parent
OWN = ("flows", "tasks", "datasets")
INIT = "__init__.py"
PIECE = 1 << 16  # bytes
INFRASTRUCTURE = frozenset(
    {
        "datasets.errors",
        "tasks.allocator",
        "tasks.artifact",
        "tasks.cache",
        "tasks.canonical",
        "tasks.download",
        "tasks.durable",
        "tasks.fingerprint",
        "tasks.fingerprint_memory",
        "tasks.hashing",
        "tasks.lock",
        "tasks.mirror",
        "tasks.pool",
        "tasks.progress",
        "tasks.raw_content",
        "tasks.request",
        "tasks.stage",
        "tasks.syntax",
        "tasks.unpacked",
    }
)
BY_VALUE = frozenset({"datasets.schema:Dataset", "datasets.recipe:Recipe"})
"""Plain data whose values are in the keys of the stages that read them: what checks the values decides no byte."""
DYNAMIC = frozenset({"globals", "eval", "exec"})

Target = tuple[str, str | None]


@dataclass
class Module:
    """The top level of one source file.

    Attributes:
        definitions: Statements that bind a name, by that name; imports too, one statement an imported name.
        imports: What a name imported from this project can be: (module, name in it or None for the module itself).
        effects: Statements that may change more than the names that they bind when they run on import.
        loads: Statements that import something when this module is imported.
    """

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, set[Target]] = field(default_factory=dict)
    effects: list[ast.stmt] = field(default_factory=list)
    loads: list[ast.stmt] = field(default_factory=list)


class Sources:
    """The project's source files as they were at the first look, parsed once each.

    Args:
        root: Folder that holds `flows/`, `tasks/` and `datasets/`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._modules: dict[str, Module] = {}
        self._nodes: dict[str, tuple[str | None, list[str]]] = {}
        # By id: a statement lives as long as its module, which is kept
        self._reach: dict[tuple[str, int], list[str]] = {}
        self._inside: dict[int, list[ast.AST]] = {}
        self._paths: dict[str, str | None] = {}

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Every source file by its path below the root, such as "tasks/fit.py"."""
        folders = {own: folder for own in OWN if (folder := self.root / own).is_dir()}
        names = (f"{own}/{name}" for own in folders for name, _ in entries_below(folders[own]) if name.endswith(".py"))
        return {name: _content(f"{self.root}/{name}") for name in names}

    def fingerprint(self, roots: Iterable[str]) -> dict[str, str]:
        """Digests of all that is reached from `roots`.

        Args:
            roots: "module:name" of a top-level definition, or "module:*" for all of a module.

        Returns:
            A digest of 16 hex digits by "module:name"; statements that run on import are under "module:".

        Raises:
            StoreError: A root doesn't exist.
        """
        todo, seen = list(roots), {}
        for root in todo:
            module, _, name = root.partition(":")
            if not self._path(module) or name not in {"*", *self._module(module).definitions}:
                raise StoreError("there is no such code to take a fingerprint of", got=root)
        while todo:
            at = todo.pop()
            if at not in seen and at not in BY_VALUE and at.partition(":")[0] not in INFRASTRUCTURE:
                seen[at], reached = self._node(at)
                todo.extend(reached)
        return {at: digest for at, digest in sorted(seen.items()) if digest}

    def _node(self, at: str) -> tuple[str | None, list[str]]:
        """Digest of what is at "module:name", "module:" or "module:*" (None if no statements), and what it reaches."""
        if at not in self._nodes:
            module, _, name = at.partition(":")
            here = self._module(module)
            reached = [f"{module}:", *self._on_import(module)]
            statements = here.definitions.get(name, [])
            if name == "*":
                reached += [f"{module}:{one}" for one in here.definitions]
                reached += [to for targets in here.imports.values() for t in targets for to in self._follow(*t, [])]
            elif not name:
                defined = (one for several in here.definitions.values() for one in several)
                statements = [*here.effects, *(one for one in defined if self._registers(module, one))]
                reached += [to for statement in here.loads for to in self._loaded(module, statement)]
            reached += [to for statement in statements for to in self._reached(module, statement)]
            names = {node.id for one in statements for node in self._walk(one) if isinstance(node, ast.Name)}
            bindings = [
                one for used in sorted(names) for one in here.definitions.get(used, ()) if syntax.is_import(one)
            ]
            self._nodes[at] = (syntax.digest([*statements, *bindings]) if statements else None, reached)
        return self._nodes[at]

    def _walk(self, statement: ast.AST) -> list[ast.AST]:
        if id(statement) not in self._inside:
            self._inside[id(statement)] = list(ast.walk(statement))
        return self._inside[id(statement)]

    def _reached(self, module: str, statement: ast.AST) -> list[str]:
        at = (module, id(statement))
        if at not in self._reach:
            self._reach[at] = list(dict.fromkeys(self._all_reached(module, statement)))
        return self._reach[at]

    def _all_reached(self, module: str, statement: ast.AST) -> Iterator[str]:
        here = self._module(module)
        inside = self._imports_in(module, statement)
        yield from self._loaded(module, statement)
        if syntax.is_import(statement):  # where the name is used says what of it is reached
            yield from (to for target in inside.get("*", ()) for to in self._follow(*target, []))
            return
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or syntax.has(statement, ast.Global):
            # The names may be used from elsewhere: after an if or try, as attributes of a class
            yield from (to for targets in inside.values() for target in targets for to in self._follow(*target, []))
        bases = {id(node.value) for node in self._walk(statement) if isinstance(node, ast.Attribute)}
        for node in self._walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                yield from self._named(node.value)
            elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in bases and (chain := syntax.chain(node)):
                if not all(map(syntax.is_import, here.definitions.get(chain[0], ()))):
                    yield f"{module}:{chain[0]}"
                for target in here.imports.get(chain[0], set()) | inside.get(chain[0], set()):
                    yield from self._follow(*target, chain[1:])
                if chain[0] in DYNAMIC or chain[:2] == ["sys", "modules"]:
                    yield f"{module}:*"

    def _follow(
        self, module: str, name: str | None, chain: list[str], via: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """What `name` of `module` and then the attributes in `chain` can stand for; `via` are re-exports so far."""
        if name is None:
            if not chain:
                yield from [f"{module}:*"] if self._path(module) else []
                return
            name, chain = chain[0], chain[1:]
        at = f"{module}:{name}"
        if at in via:
            return
        if submodule := self._path(f"{module}.{name}"):  # tasks.models.cnn.build: as deep as there are modules
            yield from self._follow(f"{module}.{name}", None, chain)
        if self._path(module):
            there = self._module(module)
            if name in there.definitions:
                yield at
                for target in there.imports.get(name, ()):
                    yield from self._follow(*target, chain, via | {at})
            elif not submodule:
                yield f"{module}:*"

    def _named(self, text: str) -> Iterator[str]:
        """The module that a text names, as for `import_module`, or "module:name"."""
        module = text.partition(":")[0]
        if all(part.isidentifier() for part in module.split(".")) and self._path(module):
            yield from [*self._on_import(module), f"{module}:*"]

    def _registers(self, module: str, statement: ast.stmt) -> bool:
        """Whether making a definition calls code of this project, which may put it into some table elsewhere."""
        called: list[ast.expr] = []
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            called += statement.decorator_list
        if isinstance(statement, ast.ClassDef):  # __init_subclass__ and metaclasses
            called += [*statement.bases, *(keyword.value for keyword in statement.keywords)]
        if called:
            reached = {to for one in called for to in self._reached(module, one)}
            return any(not syntax.is_import(one) for one in self._statements(reached))
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Call):
            reached = set(self._reached(module, statement.value.func))
            return any(not isinstance(s, ast.ClassDef) and not syntax.is_import(s) for s in self._statements(reached))
        return False

    def _statements(self, places: Iterable[str]) -> Iterator[ast.stmt]:
        for module, _, name in (place.partition(":") for place in places):
            if module not in INFRASTRUCTURE:
                yield from self._module(module).definitions.get(name, [])

    def _loaded(self, module: str, statement: ast.AST) -> Iterator[str]:
        """What runs because of the imports anywhere inside a statement."""
        for node in self._walk(statement):
            if isinstance(node, ast.Import):
                yield from (to for alias in node.names for to in self._on_import(alias.name))
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(module, node)
                yield from (to for alias in node.names for to in self._on_import(f"{base}.{alias.name}"))

    def _on_import(self, module: str) -> Iterator[str]:
        """The top level of a module and of the packages around it."""
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            if self._path(name := ".".join(parts[:depth])):
                yield f"{name}:"

    def _path(self, module: str) -> str | None:
        if module not in self._paths:
            base = module.replace(".", "/")
            self._paths[module] = next((at for at in (f"{base}/{INIT}", f"{base}.py") if at in self.files), None)
        return self._paths[module]

    def _module(self, name: str) -> Module:
        if name not in self._modules:
            path = self._path(name)
            module = self._modules[name] = Module()
            tree = syntax.parsed(self.files[path]) if path else ast.Module([], [])
            syntax.strip_docstrings(tree)
            for statement in tree.body:
                self._sort(name, module, statement)
        return self._modules[name]

    def _sort(self, name: str, module: Module, statement: ast.stmt) -> None:
        for imported, targets in (
            self._imports_in(name, statement).items() if not syntax.is_definition(statement) else ()
        ):
            module.imports.setdefault(imported, set()).update(targets)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module.loads.append(statement)
            for alias in statement.names:
                one = syntax.only(statement, alias)
                module.definitions.setdefault(alias.asname or alias.name.split(".")[0], []).append(one)
                module.effects.extend([one] if alias.name == "*" else [])
            return
        for bound in syntax.bound(statement):
            module.definitions.setdefault(bound, []).append(statement)
        if syntax.has_effect(statement):
            module.effects.append(statement)

    def _imports_in(self, module: str, statement: ast.AST) -> dict[str, set[Target]]:
        """Imports of this project's modules anywhere inside a statement, by the name that they bind."""
        found: dict[str, set[Target]] = {}
        for node in self._walk(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.split(".")[0]
                    found.setdefault(alias.asname or first, set()).add((alias.name if alias.asname else first, None))
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(module, node)
                for alias in node.names:
                    target = (base, None if alias.name == "*" else alias.name)
                    found.setdefault(alias.asname or alias.name, set()).add(target)
        own = {name: {t for t in targets if t[0].split(".")[0] in OWN} for name, targets in found.items()}
        return {name: targets for name, targets in own.items() if targets}

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = (path := self._path(module)) is not None and path.endswith(f"/{INIT}")
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, node.module] if node.module else parts)


def _content(path: str) -> bytes:
    """All bytes of a file, in half the system calls of Python's own: each may have to wait for other threads."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(partial(os.read, descriptor, PIECE), b""))
    finally:
        os.close(descriptor)
