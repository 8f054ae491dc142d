"""Questions about statements of Python, asked of their syntax trees."""

from __future__ import annotations

import ast
import hashlib

NEVER = frozenset({"__name__ == '__main__'", "TYPE_CHECKING", "typing.TYPE_CHECKING"})
"""Tests that are false when a stage imports the module."""

PARSE_TRIES = 5


def chain(node: ast.expr) -> list[str]:
    """["a", "b", "c"] for a.b.c; empty when it doesn't start with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def only(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    """The import statement with one of its names alone."""
    if isinstance(statement, ast.Import):
        return ast.Import([alias])
    return ast.ImportFrom(statement.module, [alias], statement.level)


def is_import(statement: ast.AST) -> bool:
    """Whether a statement is an import."""
    return isinstance(statement, ast.Import | ast.ImportFrom)


def is_definition(statement: ast.stmt) -> bool:
    """Whether a statement defines a function or a class."""
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def has(statement: ast.AST, kind: type[ast.AST]) -> bool:
    """Whether a node of a kind is anywhere inside."""
    return any(isinstance(node, kind) for node in ast.walk(statement))


def bound(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
    # COLUMNS["x"] = 1 and LIST[0] += 1 change a definition without binding its name
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else [statement.target]
        names |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return names


def has_effect(statement: ast.stmt) -> bool:
    """Whether a top-level statement may change more, on import, than names that it binds alone."""
    if is_definition(statement):
        return False
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(node, ast.Attribute | ast.Subscript) for target in targets for node in ast.walk(target))
    return not (isinstance(statement, ast.If) and not statement.orelse and ast.unparse(statement.test) in NEVER)


def digest(statements: list[ast.stmt]) -> str:
    """16 hex digits for what statements say, whatever their formatting."""
    text = "\n".join(ast.dump(statement) for statement in statements)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parsed(source: bytes) -> ast.Module:
    """The syntax tree; CPython 3.11 and 3.12 fail by chance when threads parse at the same time, so a few tries."""
    for _ in range(PARSE_TRIES - 1):
        try:
            return ast.parse(source)
        except SystemError:  # "AST constructor recursion depth mismatch", github.com/python/cpython/issues/106905
            continue
    return ast.parse(source)


def strip_docstrings(node: ast.AST) -> None:
    """Takes the docstrings out; only statements are visited, because no expression holds one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            strip_docstrings(child)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
