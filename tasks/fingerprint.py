"""What code a function can reach: every definition of this project that it uses, followed through names and imports.

The unit is the top-level definition (function, class, constant), read from the syntax tree, without importing anything.
Comments, formatting and docstrings don't count; a helper three imports away does. Where a name can't be followed
exactly, the whole module counts: too much is a needless run, too little would be stale output.

Modules under INFRASTRUCTURE move, name and show bytes but don't decide them, so they don't count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from datasets.errors import StoreError

ROOT = Path(__file__).parent.parent
OWN = ("flows", "tasks", "datasets")
INFRASTRUCTURE = frozenset(
    {
        "datasets.errors",
        "tasks.artifact",
        "tasks.cache",
        "tasks.canonical",
        "tasks.download",
        "tasks.durable",
        "tasks.fingerprint",
        "tasks.lock",
        "tasks.progress",
        "tasks.request",
        "tasks.stage",
    }
)


@dataclass
class Module:
    """The top level of one source file.

    Attributes:
        definitions: Statements that bind a name, by that name.
        imports: What an imported name stands for: (module, name in it or None for the module itself).
        effects: Statements that bind nothing but run on import.
    """

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    effects: list[ast.stmt] = field(default_factory=list)


class Sources:
    """The project's source files, parsed once each.

    Args:
        root: Folder that holds `flows/`, `tasks/` and `datasets/`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._modules: dict[str, Module] = {}

    def fingerprint(self, roots: Iterable[str]) -> dict[str, str]:
        """Digests of all that is reached from `roots`.

        Args:
            roots: "module:name" of a top-level definition, or "module:*" for all of a module.

        Returns:
            A digest of 16 hex digits by "module:name"; statements that run on import are under "module:".

        Raises:
            StoreError: A root doesn't exist.
        """
        todo, seen = [], {}
        for root in roots:
            module, _, name = root.partition(":")
            if not self._path(module) or name not in {"*", *self._module(module).definitions}:
                raise StoreError("there is no such code to take a fingerprint of", got=root)
            todo.extend(self._whole(module) if name == "*" else [root])
        while todo:
            at = todo.pop()
            module, _, name = at.partition(":")
            if at in seen or module in INFRASTRUCTURE:
                continue
            statements = self._module(module).definitions.get(name, []) if name else self._module(module).effects
            seen[at] = _digest(statements)
            todo.append(f"{module}:")
            for statement in statements:
                todo.extend(self._reached(module, statement))
        return dict(sorted(seen.items()))

    def _reached(self, module: str, statement: ast.stmt) -> Iterator[str]:
        here = self._module(module)
        local = {**here.imports, **self._imports_in(module, statement)}
        attributes = {id(node.value) for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and (chain := _chain(node)) and chain[0] in local:
                yield from self._follow(*local[chain[0]], chain[1:])
            elif isinstance(node, ast.Name) and node.id in here.definitions:
                yield f"{module}:{node.id}"
            elif isinstance(node, ast.Name) and node.id in local and id(node) not in attributes:
                yield from self._follow(*local[node.id], [])
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for target in self._imports_in(module, statement).values():
                yield from self._follow(*target, [])

    def _follow(self, module: str, name: str | None, chain: list[str]) -> Iterator[str]:
        """What `name` of `module`, followed by the attributes in `chain`, stands for."""
        if name is None:
            while chain and self._path(f"{module}.{chain[0]}"):  # tasks.models.cnn.build: as deep as there are modules
                module, chain = f"{module}.{chain[0]}", chain[1:]
            if not chain:
                yield from self._whole(module)
                return
            name = chain[0]
        elif self._path(f"{module}.{name}"):
            yield from self._follow(f"{module}.{name}", None, chain)
            return
        if not self._path(module):
            return
        there = self._module(module)
        if name in there.definitions:
            yield f"{module}:{name}"
        elif name in there.imports:
            yield from self._follow(*there.imports[name], chain[1:])
        else:
            yield from self._whole(module)

    def _whole(self, module: str) -> Iterator[str]:
        if self._path(module):
            yield f"{module}:"
            yield from (f"{module}:{name}" for name in self._module(module).definitions)

    def _path(self, module: str) -> Path | None:
        if module.split(".")[0] not in OWN:
            return None
        base = self.root.joinpath(*module.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def _module(self, name: str) -> Module:
        if name not in self._modules:
            path = self._path(name)
            module = self._modules[name] = Module()
            for statement in ast.parse(path.read_bytes()).body if path else []:
                self._sort(name, module, statement)
        return self._modules[name]

    def _sort(self, name: str, module: Module, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module.imports.update(self._imports_in(name, statement))
            if any(alias.name == "*" for alias in statement.names):
                module.effects.append(statement)
        elif bound := _bound(statement):
            for one in bound:
                module.definitions.setdefault(one, []).append(statement)
            module.imports.update(self._imports_in(name, statement) if isinstance(statement, ast.If | ast.Try) else {})
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            module.effects.append(statement)
            module.imports.update(self._imports_in(name, statement))

    def _imports_in(self, module: str, statement: ast.stmt) -> dict[str, tuple[str, str | None]]:
        """Imports of this project's modules anywhere inside a statement, by the name that they bind."""
        found: dict[str, tuple[str, str | None]] = {}
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0],
                        None,
                    )
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(module, node)
                for alias in node.names:
                    found[alias.asname or alias.name] = (base, None if alias.name == "*" else alias.name)
        return {name: target for name, target in found.items() if target[0].split(".")[0] in OWN}

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = (path := self._path(module)) is not None and path.name == "__init__.py"
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, node.module] if node.module else parts)


def _chain(node: ast.expr) -> list[str]:
    """["a", "b", "c"] for a.b.c; empty when it doesn't start with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds, imports aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    bound: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
    # COLUMNS["x"] = 1 and LIST[0] += 1 change a definition without binding its name
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else [statement.target]
        bound |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return bound


def _digest(statements: list[ast.stmt]) -> str:
    text = "\n".join(ast.dump(_WithoutDocstrings().visit(statement)) for statement in statements)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _WithoutDocstrings(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
        return node
