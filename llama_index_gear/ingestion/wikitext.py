"""MediaWiki's markup as Markdown: templates are left out, but for boxes of facts; rows of tables are sentences."""

from __future__ import annotations

import re

from llama_index_gear.ingestion.tables import write_rows

WIKI = {".mediawiki", ".wiki"}
"""Endings of files of MediaWiki's markup."""
_UNSEEN = re.compile(
    r"<!--.*?-->|<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref>|\b__[A-Z]+__|</?gallery[^<>]*>", re.DOTALL | re.IGNORECASE
)
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_FIELD = re.compile(r"\|[ \t]*([^|=\n\[\]]+?)[ \t]*=[ \t]*((?:\[\[[^\[\]]*\]\]|[^|\[\]])*)")
_TABLE = re.compile(r"^[ \t-]*\{\|[^\n]*\n(.*?)^[ \t]*\|\}", re.DOTALL | re.MULTILINE)
_CAPTION = re.compile(r"^[ \t]*\|\+(.*)$", re.MULTILINE)
_CELL = re.compile(r"^[ \t]*[|!](?!-)|\|\||!!", re.MULTILINE)
_STYLE = re.compile(r"\s*[\w-]+[ \t]*=[^|\[\]]*\|(?!\|)")
_OF_SPACE = re.compile(r"\[\[:?[A-Za-z][\w ]*:(?=\S)[^\[\]]*(?:\[\[[^\[\]]*\]\][^\[\]]*)*\]\]")
"""Matches a picture, a category, or the page in another language."""
_MARKS = [
    (re.compile(r"\A\s*#\w+[ \t]*:?[ \t]*(?=\[\[)"), ""),
    (re.compile(r"^[ \t]*(?:File|Image|Datei|Fichier|Archivo):[^|\n]*(?:\||$)", re.MULTILINE), "* "),
    (re.compile(r"^[*#:;]+[ \t]*", re.MULTILINE), "- "),
    (re.compile(r"'''"), "**"),
    (re.compile(r"''"), "*"),
    (re.compile(r"\[(https?://\S+)[ \t]+([^\[\]\n]+)\]"), r"[\2](\1)"),
]
_HEADING = re.compile(r"^(={1,6})[ \t]*([^=\n](?:.*[^=\n])?)[ \t]*\1[ \t]*$", re.MULTILINE)


def read_wikitext(text: str) -> str:
    """Return a page of MediaWiki as Markdown. Links of one page to another stay, since Markdown's dialects have them.

    Args:
        text: the page.

    """
    text = _OF_SPACE.sub("", _UNSEEN.sub("", text))
    count = 1
    while count:
        text, count = _TEMPLATE.subn(_write_template, text)
    for pattern, mark in _MARKS:
        text = pattern.sub(mark, text)
    text = _TABLE.sub(_write_table, text)
    return _HEADING.sub(lambda match: f"{'#' * len(match[1])} {match[2].rstrip()}", text)


def _write_template(match: re.Match[str]) -> str:
    fields = _FIELD.findall(match[1]) if re.match(r"\s*infobox", match[1], re.IGNORECASE) else []
    return write_rows([name for name, _ in fields], [[" ".join(value.split()) for _, value in fields]])


def _write_table(match: re.Match[str]) -> str:
    head: list[str] = []
    rows = []
    caption = _CAPTION.search(match[1])
    for row in re.split(r"^[ \t]*\|-[^\n]*$", _CAPTION.sub("", match[1]), flags=re.MULTILINE):
        cells = [" ".join(_STYLE.sub("", cell, count=1).split()) for cell in _CELL.split(row)[1:]]
        if row.lstrip().startswith("!") and not head:
            head = cells
        elif any(cells):
            rows.append(cells)
    return f"{f'**{caption[1].strip()}**' if caption else ''}\n\n{write_rows(head, rows)}\n"
