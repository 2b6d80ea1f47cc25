"""The title and the text of an HTML page: what a browser shows, with its headings as Markdown's."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import NamedTuple

_UNSEEN = {"head", "script", "style", "template", "noscript"}
_LINES = {"p", "div", "br", "hr", "li", "ul", "ol", "dl", "dt", "dd", "tr", "table", "section", "article", "header"}
_LINES |= {"footer", "main", "nav", "aside", "pre", "blockquote", "figure", "figcaption", "form", "address", "details"}
_CELLS = {"td", "th"}
_HEADING = re.compile("h[1-6]")


class Page(NamedTuple):
    """An HTML page.

    Attributes:
        title: what the `<title>` in its head says; "" without one. A `<title>` of an SVG is a tooltip, and is left out.
        text: its text, without scripts and styles: paragraphs on lines of their own, `<h2>` as `## …`.

    """

    title: str
    text: str


def read_html(page: str) -> Page:
    """Read a page."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    lines = [" ".join(line.split()) for line in "".join(reader.parts).splitlines()]
    text = re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip()
    return Page(" ".join("".join(reader.title).split()), text)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.title: list[str] = []
        self._in_title = self._takes_title = False
        self._in_body = False
        self._drawings = 0  # the depth of <svg>
        self._unseen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title"
        self._takes_title = self._in_title and not (self.title or self._in_body or self._drawings)
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag == "body":
            self._unseen.clear()  # also where </head> is missing
            self._in_body = True
        elif tag == "svg":
            self._drawings += 1
        elif _HEADING.fullmatch(tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _LINES:
            self.parts.append("\n")
        elif tag in _CELLS:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._takes_title = False
        if tag == "svg":
            self._drawings = max(self._drawings - 1, 0)
        elif tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif _HEADING.fullmatch(tag):
            self.parts.append("\n\n")
        elif tag in _LINES:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._takes_title:
            self.title.append(data)
        elif not (self._in_title or self._unseen):
            self.parts.append(re.sub(r"\s+", " ", data))

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Read `<![…]>`: what is no CDATA is a comment, also where it isn't whole."""
        if self.rawdata.startswith("<![CDATA[", i):
            return super().parse_marked_section(i, report)
        return self.parse_bogus_comment(i, report)
