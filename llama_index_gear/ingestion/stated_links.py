"""Links that a conversion into Markdown would lose: of HTML pages and notebooks to their neighbours, and of letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import BytesHeaderParser
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.errors import is_whole
from llama_index_gear.extraction.link_targets import fold
from llama_index_gear.ingestion.converter import HTML
from llama_index_gear.ingestion.notebooks import NOTEBOOK

LINKS = "links"
"""Metadata key of a document's links, [words, target] each."""
MESSAGE_ID = "message_id"
_ANCHOR = re.compile(
    r"<a\s(?:[^<>]{0,2000}?\s)?href\s*=\s*(?:\"([^\"<>]*)\"|'([^'<>]*)'|([^\s\"'<>]+))[^<>]*>", re.IGNORECASE
)
_LOCAL_LINK = re.compile(r"(?<!!)\[([^\[\]\\\"]{1,200})\]\((?![a-z]+:|#)([^()\s\"\\]{1,300})\)")
"""Matches a link of Markdown in a string of JSON."""
_TAG = re.compile(r"<[^<>]*>")
_ID = re.compile(r"<[^<>\s]{1,500}>")
_MOST_WORDS = 500  # characters of a link's words, with tags
_MOST = 1_000  # links of a document
_MOST_TRIED = 2_000  # links within a site whose words are looked for


def read_links(path: Path, text: str) -> dict[str, Any]:
    """Return what a document's metadata say of its links: `links`, and a letter's `message_id`.

    Args:
        path: of the file.
        text: the document's text. Links whose words it doesn't have are left out, as those of menus.

    Raises:
        OSError: the file can't be read.

    """
    ending = path.suffix.lower()
    if ending in HTML or ending == NOTEBOOK:
        read = _read_cells if ending == NOTEBOOK else _read_anchors
        links = read(path.read_bytes().decode("utf-8", "replace"), text)
        return {LINKS: links} if links else {}
    if ending == ".eml":
        with path.open("rb") as file:
            return _read_header(BytesHeaderParser().parse(file))
    return {}


def _read_anchors(source: str, text: str) -> list[list[str]]:
    links: dict[tuple[str, str], None] = {}
    folded = f" {fold(text)} "
    for target, match in islice(_find_anchors(source), _MOST_TRIED):
        end = source.find("</a", match.end(), match.end() + _MOST_WORDS)
        words = " ".join(unescape(_TAG.sub("", source[match.end() : end])).split()) if end > 0 else ""
        if words and f" {fold(words)} " in folded and is_whole(words + target):
            links[words, target] = None
            if len(links) == _MOST:
                break
    return [list(link) for link in links]


def _read_cells(source: str, text: str) -> list[list[str]]:
    """Read the links of a notebook to files beside it."""
    found = dict.fromkeys((match[1], match[2]) for match in islice(_LOCAL_LINK.finditer(source), _MOST))
    return [[words, target] for words, target in found if words in text and is_whole(words + target)]


def _find_anchors(source: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Find the links within a site."""
    for match in _ANCHOR.finditer(source):
        target = unescape(match[1] or match[2] or match[3] or "").strip()
        if not re.match(r"\w+:|//|#", target):
            yield target, match


def _read_header(header: Message) -> dict[str, Any]:
    """Read whom a letter answers. Letters that it only refers to come first in `References`."""
    found: dict[str, Any] = {}
    if own := _ID.search(str(header.get("Message-ID", ""))):
        found[MESSAGE_ID] = own[0]
    answered = _ID.findall(f"{header.get('In-Reply-To', '')} {header.get('References', '')}")
    if answered := [id_ for id_ in dict.fromkeys(answered) if is_whole(id_)][:_MOST]:
        found[LINKS] = [["", id_] for id_ in answered]
    return found


def place_links(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Leave each passage of a file the links whose words it has; the first one those without words."""
    placed = []
    for number, node in enumerate(nodes):
        if links := node.metadata.get(LINKS):
            text = f" {fold(node.get_content(MetadataMode.NONE))} "
            own = [[words, to] for words, to in links if (f" {fold(words)} " in text if words else number == 0)]
            kept = {key: value for key, value in node.metadata.items() if key != LINKS}
            node = node.model_copy(update={"metadata": {**kept, LINKS: own} if own else kept})
        placed.append(node)
    return placed
