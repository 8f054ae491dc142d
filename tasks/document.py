"""A page of headings, text, tables and pictures, as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from tasks.report import table

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #d5dbe3}
table{border-collapse:collapse;margin:.6rem 0;display:block;overflow-x:auto}
td,th{border:1px solid #d5dbe3;padding:.2rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{background:#f1f4f8}img{max-width:100%}pre{white-space:pre-wrap;background:#f1f4f8;padding:.6rem}
""".strip()


class Document:
    """Takes blocks one after the other; all text is plain, whatever it holds.

    Args:
        title: Of the page.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._markdown, self._html = [f"# {title}"], [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Starts a section."""
        self._markdown.append(f"## {text}")
        self._html.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._markdown.append(text)
        self._html.append(f"<p>{html.escape(text)}</p>")

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

    def markdown(self) -> str:
        """All of it as Markdown."""
        return "\n\n".join(self._markdown) + "\n"

    def html(self) -> str:
        """All of it as HTML that loads nothing."""
        body = "\n".join(self._html)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
        )


def _runs(text: str) -> list[str]:
    """Runs of backticks."""
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]
