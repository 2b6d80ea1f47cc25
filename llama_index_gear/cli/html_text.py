"""The text of an HTML page: what a browser shows, with its headings as Markdown's."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_UNSEEN = {"head", "script", "style", "template", "noscript"}
_LINES = {"p", "div", "br", "hr", "li", "ul", "ol", "dl", "dt", "dd", "tr", "table", "section", "article", "header"}
_LINES |= {"footer", "main", "nav", "aside", "pre", "blockquote", "figure", "figcaption", "form", "address", "details"}
_CELLS = {"td", "th"}
_HEADING = re.compile("h[1-6]")


def read_html(page: str) -> str:
    """Return the text of a page, without scripts and styles: paragraphs on lines of their own, `<h2>` as `## …`."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    lines = [" ".join(line.split()) for line in "".join(reader.parts).splitlines()]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag == "body":
            self._unseen.clear()  # also where </head> is missing
        elif _HEADING.fullmatch(tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _LINES:
            self.parts.append("\n")
        elif tag in _CELLS:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif _HEADING.fullmatch(tag):
            self.parts.append("\n\n")
        elif tag in _LINES:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(re.sub(r"\s+", " ", data))
