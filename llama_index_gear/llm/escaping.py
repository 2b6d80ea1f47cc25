"""Text of passages and models beside our own: it can't close a fence, begin another passage, or state a citation.

Nothing here takes time to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llama_index_gear.characters import escape_line, escape_unseen

_FENCE = re.compile(r"#{5,}")
_BREAKS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_MAX_DIGITS = 9  # of a number; a longer one is of no passage
_CITATION = re.compile(r"[\[［【]\s*(\d+)\s*[\]］】]")
_MARKER = re.compile(
    rf"((?:\A|[{_BREAKS}])[^\w{_BREAKS}]*)(?:[\[［【]\s*(\d+)\s*[\]］】]|(Passage\s+)(\d+)(?=\s*[.:]))",
    re.IGNORECASE,
)
_ID = re.compile(r"([(（]\s*ids?)\s*[:：]", re.IGNORECASE)
_FACT = "↳"
_MARGIN = "| "


def escape_fences(text: str) -> str:
    """Shorten the fences in a text, so that it cannot close the prompt's own, `#####`."""
    return _FENCE.sub("####", text)


def escape_passage(text: str) -> str:
    """Escape a passage that stands among numbered ones: it can neither close the fence nor begin another passage.

    `[2]` at the start of a line becomes `(2)`, and `Passage 2.` becomes `Passage (2).`.
    """
    return _MARKER.sub(lambda match: f"{match[1]}{match[3] or ''}({match[2] or match[4]})", escape_fences(text))


def escape_citations(text: str) -> str:
    """Escape a text that is followed by citations of its sources: `[2]` in it becomes `(2)`."""
    return _CITATION.sub(r"(\1)", text)


def escape_name(text: str) -> str:
    """Escape a title, or a part of a fact, on a line of a result: it can state no number, no id and no other fact."""
    return escape_id(escape_citations(text))


def escape_id(text: str) -> str:
    """Escape an id on a line of a result: it can neither end the line nor state another id, or a fact."""
    return _ID.sub(r"\1", escape_line(text)).replace(_FACT, r"\u21b3")


def escape_lines(text: str) -> str:
    """Escape a text whose lines stand among those of a result: none of them begins a passage, or is a fact of one."""
    seen = escape_unseen(text.replace("\r\n", "\n"))
    return _ID.sub(r"\1", escape_passage(seen)).replace(_FACT, r"\u21b3")


def format_result(number: int, title: str, passage_id: str, chain: Sequence[Sequence[str]] = (), text: str = "") -> str:
    """Format a passage for a model that asked for it.

    The first line has its number, title and id. A line for each fact that leads to it begins with `↳`, and each of its
    own with `| `. Nothing that a passage says can look like one of the first two.
    """
    facts = [escape_passage(f"   {_FACT} {' — '.join(map(escape_name, slots))}") for slots in chain]
    lines = [_MARGIN + line for line in escape_lines(text).splitlines()]
    return "\n".join([f"[{number}] {escape_name(title)} (id: {escape_id(passage_id)})", *facts, *lines])


def split_citations(text: str) -> Iterator[tuple[str, int]]:
    """Yield the parts of a text: citations, such as `[2]`, each with its number, and what stands between, with 0."""
    end = 0
    for match in _CITATION.finditer(text):
        if len(match[1]) <= _MAX_DIGITS:
            yield text[end : match.start()], 0
            yield match[0], int(match[1])
            end = match.end()
    yield text[end:], 0


def number_passages(passages: Sequence[str]) -> str:
    """Format passages for a prompt, escaped and numbered from 1."""
    return "\n\n".join(f"[{number}] {escape_passage(text)}" for number, text in enumerate(passages, start=1))
