"""A page of headings, text, tables and pictures, as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:74rem;margin:2rem auto;padding:0 1rem;color:#1c2430}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #d5dbe3}
table{border-collapse:collapse;margin:.6rem 0;display:block;overflow-x:auto}
td,th{border:1px solid #d5dbe3;padding:.2rem .6rem;text-align:left;vertical-align:top;overflow-wrap:break-word}
th{background:#f1f4f8}img,svg{max-width:100%}pre{white-space:pre-wrap;background:#f1f4f8;padding:.6rem}
h3{font-size:1rem;margin-top:1.4rem}summary{cursor:pointer;color:#27548a}nav a{margin-right:1rem;color:#27548a}
""".strip()


class Document:
    """Takes blocks one after the other; all text is plain, whatever it holds.

    Args:
        title: Of the page.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._markdown, self._html = [f"# {title}"], []
        self._sections: list[str] = []

    def heading(self, text: str, level: int = 2) -> None:
        """Starts a section, or with level 3 a part of one."""
        anchor = ""
        if level == 2:
            self._sections.append(text)
            anchor = f' id="s{len(self._sections)}"'
        self._markdown.append(f"{'#' * level} {text}")
        self._html.append(f"<h{level}{anchor}>{html.escape(text)}</h{level}>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._markdown.append(text)
        self._html.append(f"<p>{html.escape(text)}</p>")

    def points(self, lines: Sequence[tuple[str, str]]) -> None:
        """A list whose lines begin with a word in bold."""
        self._markdown.append("\n".join(f"- **{word}** {text}" for word, text in lines))
        items = (f"<li><b>{html.escape(word)}</b> {html.escape(text)}</li>" for word, text in lines)
        self._html.append(f"<ul>{''.join(items)}</ul>")

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """What is added inside is shown after a click on the title; in Markdown it is simply there."""
        self._markdown.append(f"**{title}**")
        self._html.append(f"<details><summary>{html.escape(title)}</summary>")
        yield
        self._html.append("</details>")

    def verbatim(self, text: str) -> None:
        """Text whose line breaks and spaces stay."""
        fence = "`" * (max((len(run) for run in _runs(text)), default=0) + 3)
        self._markdown.append(f"{fence}text\n{text.strip()}\n{fence}")
        self._html.append(f"<pre>{html.escape(text.strip())}</pre>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; the head may be of empty texts."""
        self._markdown.append(table(list(head), [list(row) for row in rows]))

        def line(cells: Sequence[str], tag: str) -> str:
            return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

        top = line(head, "th") if any(head) else ""
        self._html.append(f"<table>{top}{''.join(line(row, 'td') for row in rows)}</table>")

    def picture(self, about: str, png: bytes) -> None:
        """A picture, inside the page."""
        data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        self._markdown.append(f"![{about}]({data})")
        self._html.append(f'<p><img alt="{html.escape(about)}" src="{data}"></p>')

    def drawing(self, about: str, svg: str) -> None:
        """A drawing: SVG whose texts are escaped already; Markdown has only what it is about."""
        self._markdown.append(f"*{about}*")
        self._html.append(f"<p>{svg}</p>")

    def markdown(self) -> str:
        """All of it as Markdown."""
        return "\n\n".join(self._markdown) + "\n"

    def html(self, *, contents: bool = False) -> str:
        """All of it as HTML that loads nothing.

        Args:
            contents: Whether links to the sections stand at the top.
        """
        links = (f'<a href="#s{i}">{html.escape(text)}</a>' for i, text in enumerate(self._sections, 1))
        top = [f"<h1>{html.escape(self.title)}</h1>", *([f"<nav>{' '.join(links)}</nav>"] if contents else [])]
        body = "\n".join([*top, *self._html])
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
        )


def _runs(text: str) -> list[str]:
    """Runs of backticks."""
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; bars and line breaks in a cell can't break it."""
    lines = [head, ["---"] * len(head), *rows]
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)
