"""What a statement binds, does on import, and says."""

from __future__ import annotations

import ast

import pytest

from tasks.fingerprint import Sources
from tasks.syntax import bound, chain, digest, has_effect, only, parsed, strip_docstrings


def one(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a):\n    b = 1", {"f"}), ("class C:\n    b = 1", {"C"}), ("a = b = 1", {"a", "b"}),
        ("a: int = 1", {"a"}), ("a += 1", {"a"}), ("a[0] = b", {"a"}), ("a.x = 1", {"a"}), ("del a", {"a"}),
        ("(a, *b), c = d", {"a", "b", "c"}), ("for a in b: c = 1", {"a", "c"}), ("with x as a: pass", {"a"}),
        ("if x:\n    def f(): ...\nelse:\n    import p.q, r as s", {"f", "p", "s"}), ("print(a)", set()),
    ],
)  # fmt: skip
def test_the_names_that_a_statement_binds_or_changes(text: str, names: set[str]) -> None:
    assert bound(one(text)) == names


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("print(a)", True), ("'text'", False), ("a = f()", False), ("a.b = 1", True), ("a[0]: int = 1", True),
        ("def f(): g()", False), ("for a in b: pass", True), ("if __name__ == '__main__':\n    f()", False),
        ("if TYPE_CHECKING:\n    import a", False), ("if TYPE_CHECKING:\n    import a\nelse:\n    f()", True),
    ],
)  # fmt: skip
def test_whether_a_statement_may_change_more_than_its_names(text: str, effect: bool) -> None:
    assert has_effect(one(text)) is effect


@pytest.mark.parametrize(("text", "parts"), [("a", ["a"]), ("a.b.c", ["a", "b", "c"]), ("a().b", []), ("1", [])])
def test_chains_of_attributes(text: str, parts: list[str]) -> None:
    assert chain(ast.parse(text, mode="eval").body) == parts


def test_one_name_of_an_import() -> None:
    for text, expected in (("import a.b as c, d", "import a.b as c"), ("from .m import x, y", "from .m import x")):
        statement = one(text)
        assert isinstance(statement, ast.Import | ast.ImportFrom)
        assert ast.unparse(only(statement, statement.names[0])) == expected


def test_the_digest_is_of_what_is_said_not_of_how_it_is_written() -> None:
    def of(text: str) -> str:
        tree = parsed(text.encode())
        strip_docstrings(tree)
        return digest(tree.body)

    plain = of("def f(a):\n    return a + 1\n")
    assert of('def f( a ):\n    """Says so."""\n    return (a+1) # more\n') == plain
    assert of("def f(a):\n    return a + 2\n") != plain
    assert of('def f():\n    """Only words."""\n') == of("def f():\n    pass\n")
    assert of('class C:\n    def f(self):\n        """Words."""\n        x = "kept"\n') != of(
        "class C:\n    def f(self): ..."
    )


def test_a_parser_that_fails_by_chance_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, failures = ast.parse, iter((1, 1, 0, 0, 1) + (0,) * 10_000)
    expected = Sources().fingerprint(["tasks.fit:fit_model"])

    def failing(source: bytes) -> ast.Module:
        if next(failures):
            raise SystemError("AST constructor recursion depth mismatch (before=84, after=76)")
        return parse(source)

    monkeypatch.setattr(ast, "parse", failing)
    assert Sources().fingerprint(["tasks.fit:fit_model"]) == expected
    failures = iter((1,) * 10_000)
    with pytest.raises(SystemError):
        Sources().fingerprint(["tasks.fit:fit_model"])
