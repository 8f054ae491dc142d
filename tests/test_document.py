from __future__ import annotations

import base64
import html.parser

import pytest

from tasks.document import Document, table


class Parsed(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HOSTILE = '<script>alert("x")</script> & | `a` \n end'


@pytest.fixture
def document() -> Document:
    made = Document(f"Title {HOSTILE}")
    made.heading("Numbers")
    made.text(HOSTILE)
    made.table(["name", "value"], [["a|b", HOSTILE], ["c", "d"]])
    made.verbatim("one\n  two ``` three")
    made.picture("a plot", b"\x89PNG")
    return made


def test_html_holds_all_text_and_runs_none(document: Document) -> None:
    page = Parsed(document.html())
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert tags.count("tr") == 3
    assert HOSTILE in page.texts
    assert "one\n  two ``` three" in page.texts


def test_html_loads_nothing(document: Document) -> None:
    page = Parsed(document.html())
    sources = [attrs["src"] for tag, attrs in page.tags if "src" in attrs]
    assert sources == [f"data:image/png;base64,{base64.b64encode(bytes([0x89]) + b'PNG').decode()}"]
    assert not [attrs for tag, attrs in page.tags if tag in ("link", "iframe") or "href" in attrs]


def test_markdown_has_the_same(document: Document) -> None:
    text = document.markdown()
    assert "## Numbers" in text
    assert "| c | d |" in text
    assert "a\\|b" in text
    assert "``````text\none\n  two ``` three\n``````" in text
    assert "![a plot](data:image/png;base64," in text


def test_a_table_without_a_head_has_none_in_html() -> None:
    made = Document("t")
    made.table(["", ""], [["a", "b"]])
    assert "<th>" not in made.html()
    assert made.markdown().splitlines()[2:] == ["|  |  |", "| --- | --- |", "| a | b |"]


def test_a_table_is_not_broken_by_its_cells() -> None:
    assert table(["a", "b"], [["x|y", "1\n2"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"


def test_sections_can_be_linked_folded_and_drawn() -> None:
    made = Document("t")
    made.heading("One & two")
    made.heading("A part", 3)
    with made.folded("more <b>"):
        made.points([("warn", HOSTILE)])
    made.drawing("a drawing", "<svg><text>x</text></svg>")
    page = Parsed(made.html(contents=True))
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == ["#s1"]
    assert [attrs.get("id") for tag, attrs in page.tags if tag in ("h2", "h3")] == ["s1", None]
    assert [tag for tag, _ in page.tags if tag in ("details", "ul", "svg", "script")] == ["details", "ul", "svg"]
    assert "more <b>" in page.texts
    assert f" {HOSTILE}" in page.texts
    assert "<a " not in made.html()
    assert "### A part\n\n**more <b>**\n\n- **warn** <script>" in made.markdown()
