"""Names that links show: pages, addresses and files that they lead to, and titles that are their texts."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llama_index_gear.extraction.identifiers import find_identifier
from llama_index_gear.extraction.sentences import Form, Sentence
from llama_index_gear.extraction.words import CONNECTORS, FUNCTION_WORDS

_INDENT = re.compile(r"\n*([^\S\n]*)")
_MOST_TITLE_WORDS = 14
_TAB = 4
_SMALL_OF_TITLES = FUNCTION_WORDS | CONNECTORS | {"vs", "vs.", "–", "—", "-"}


class Name(NamedTuple):
    """A name in a sentence: index of its first word, index behind its last word, and the name."""

    start: int
    end: int
    text: str


def find_linked(sentence: Sentence) -> Iterator[tuple[Name, bool]]:
    """Find what the links of a sentence lead to: pages, told by True, and addresses and files."""
    starts = [start for start, _ in sentence.places]
    for link in sentence.links:
        first, last = bisect_left(starts, link.start), bisect_left(starts, link.end)
        first = max(first - (first == last), 0)  # the text begins inside a word
        if not starts or not starts[0] <= link.end or link.start > sentence.places[-1][1]:
            continue
        if link.is_page:
            yield Name(first, max(last, first + 1), link.target), True
            continue
        if is_title(link.text) and sentence.form is Form.PROSE:
            yield Name(first, max(last, first + 1), link.text), True
        if span := find_identifier(link.target):
            yield Name(first, max(last, first + 1), link.target[slice(*span)]), False


def is_title(text: str) -> bool:
    """Return True for a link's text in title case, of several parts: words that stay small, or marks, part them."""
    words = text.split()
    if not 2 < len(words) <= _MOST_TITLE_WORDS or text[-1] in ".!?" or not words[0][:1].isupper():
        return False
    large = [word for word in words if word.lower() not in _SMALL_OF_TITLES]
    is_divided = len(large) < len(words) or any(word[-1] in ":,–—-" for word in words[:-1])
    return is_divided and len(large) > 1 and all(word[0].isupper() or not word[0].isalpha() for word in large)


def stands_above_smaller(text: str, place: int) -> bool:
    """Return True if the line at this place is less indented than the next one that is not empty."""
    following = text.find("\n", place)
    return following >= 0 and _measure_indent(text, following) > _measure_indent(text, text.rfind("\n", 0, place) + 1)


def _measure_indent(text: str, place: int) -> int:
    """Return the width of the space in front of the first line from a place on that is not empty."""
    matched = _INDENT.match(text, place)
    return len(matched[1].expandtabs(_TAB)) if matched else 0


def find_title(words: Sequence[str], title: str) -> Iterator[Name]:
    """Find a title, with punctuation around it, in the words of a sentence."""
    parts = title.split()
    for start in range(len(words) - len(parts) + 1):
        own = words[start : start + len(parts)]
        if own[1:-1] == parts[1:-1] and own[0].endswith(parts[0]) and own[-1].startswith(parts[-1]):
            yield Name(start, start + len(parts), title)
