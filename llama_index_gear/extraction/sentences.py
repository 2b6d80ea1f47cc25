"""Sentences of a passage, as people write it: plain text or Markdown, with code left whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from typing import NamedTuple

from llama_index_gear.extraction.identifiers import MAX_WORD_LETTERS, find_identifier, is_code
from llama_index_gear.extraction.words import ABBREVIATIONS, CALENDAR, FUNCTION_WORDS, NAME_TITLES

_MAX_SENTENCE_WORDS = 200  # a longer sentence is cut

_OPENING = "\"'“‘«([{*_"
_CLOSING = "\"'”’»)]}*_"
_ENDING = tuple(".!?…。！？।؟")

_SPACED = re.compile(r"([–—]|(?<=[^\W\d_]{3})/(?=[^\W\d_]{3}))|(?<=[。！？])")
"""Word boundaries without a space; no stroke of "CI/CD" or "km/h"."""
_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\([^()\s]{1,500}\)")
"""Matches a picture: it counts as its description."""
_LABEL = re.compile(r"\[?\d{1,2}:\d\d(?::\d\d)?\]?[ \t]|<?[^\W\d_a-z][\w .-]{0,30}>?:[ \t]")
"""Matches the start of a line that begins something new: a time, or a name or key with a colon behind it."""
_KEY = re.compile(r"(?:^|; )(?=[^\n:;]*[^\W\d_])[^\s:;@/A-Z]{1,40}(?: [^\s:;@/A-Z]{1,40}){0,5}: ")
"""Matches a key in small letters with a colon behind it, at the start of a line or behind a semicolon."""
_MAX_CELL_WORDS = 12
"""Words that a cell has at most, if a full stop in it ends no sentence ("office: St. Gallen; boss: Dr. No.")."""
_LEAST_WIDTH = 40
_ROOM = 0.75
"""Share of a paragraph's width: a line that would be shorter with the next line's first word was ended on purpose."""
_CLASSES = frozenset(
    "annex appendix article chapter class clause column exhibit figure form grade group hepatitis item level"
    " line option page part phase plan point room rule schedule section stage step table type unit vitamin".split()
)
"""Words in front of a letter that is no initial ("Exhibit A.")."""
_FRONT_MATTER = re.compile(
    r"\s*---[ \t]*\r?\n(?:(?:[A-Za-z_][\w .-]*:|[ \t]|#|-[ \t])[^\n]*\n|\r?\n)*(?:---|\.\.\.)[ \t]*\r?(?:\n|$)"
)
"""Matches the YAML before a Markdown text."""
_FOOTNOTE = re.compile(r"\[\^[\w-]{1,40}\]:?")
_TAG = re.compile(
    r"</?(?:a|b|br|center|code|details|div|em|h[1-6]|hr|i|img|kbd|li|ol|p|pre|small|span|strong|sub|summary|sup|table|td"
    r"|th|tr|u|ul)(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_CODE_OR_WORD = re.compile(r"[(\[{\"'“‘«*_~]*(`{1,3})(?![`\s])(?:(?!''|`).){1,160}(?<!\s)\1(?!`)[^\w\s`]*|\S+")
"""Matches inline code with the punctuation around it, or a word."""
_HEADING = re.compile(r"(#{1,6})(?:[ \t]+|$)|(?=<h([1-6])\b[^\n]{0,300}</h\2>$)", re.IGNORECASE)
_MARKS = re.compile(r"(?:>[ \t]?|(?:[-*+•–]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?)+")
"""Matches the marks at the start of a line: of a list, a task, a quotation."""
_FENCE = re.compile(r"(`{3,}|~{3,})[^`]*$")
_CELL = re.compile(r"(?<!\\)\|")


class Form(Enum):
    """The place of a sentence in its passage."""

    PROSE = "prose"
    HEADING = "heading"
    ROW = "row"
    CODE = "code"
    RULE = "rule"
    """A line that only divides: a blank one, "---", a table's under its head. No sentence has this form."""


class Sentence(NamedTuple):
    """A sentence, heading, row of a table or block of code.

    Attributes:
        words: its words, with their punctuation.
        form: its place in the passage.
        level: the level of a heading, from 1, as in Markdown; 0 for everything else.

    """

    words: list[str]
    form: Form
    level: int = 0


def split_sentences(text: str) -> Iterator[Sentence]:
    """Split a passage into sentences. A blank line ends a sentence, too; a block of code is one sentence.

    Front matter is left out.
    """
    if matter := _FRONT_MATTER.match(text):
        text = text[matter.end() :]
    for form, level, block in _split_blocks(text):
        if form is Form.PROSE:
            parts = _split_prose(_split_words(block), is_record=_is_record(block))
        elif form is Form.CODE:
            parts = iter([[word[:MAX_WORD_LETTERS] for word in block.split()]])
        else:
            parts = _cut(_split_cells(block) if "|" in block else _split_words(block))
        yield from (Sentence(words, form, level) for words in parts if words)


class _Line(NamedTuple):
    """A line of Markdown without its marks, or a block of code: `continues` if it may go on with the line before."""

    form: Form
    text: str
    continues: bool = False
    level: int = 0


def _split_blocks(text: str) -> Iterator[tuple[Form, int, str]]:
    if "\n" not in text and text[:1] not in "#<>-*+•|`~":
        yield Form.PROSE, 0, text
        return
    block: list[_Line] = []
    for line in _read_lines(text):
        if block and not _goes_on(block, line):
            yield _join_lines(block, line)
            block = []
        if line.form is not Form.RULE:
            block.append(line)
    if block:
        yield _join_lines(block, None)


def _goes_on(block: Sequence[_Line], following: _Line) -> bool:
    """Return True if a line of prose goes on with the line in front of it, as in text that is wrapped."""
    last = block[-1].text
    if not following.continues or not following.form is block[-1].form is Form.PROSE or not last:
        return False
    if _LABEL.match(following.text):
        return False
    width = max(_LEAST_WIDTH, max(len(line.text) for line in block[-20:]), len(following.text))
    first = following.text.split(maxsplit=1)[0]
    return first[:1].islower() or len(last) + 1 + len(first) > _ROOM * width


def _join_lines(block: Sequence[_Line], following: _Line | None) -> tuple[Form, int, str]:
    """Join the lines of a block. A rule below makes prose a heading, and a table's first row its head."""
    form, level, text = block[0].form, block[0].level, "\n".join(line.text for line in block)
    if following is not None and following.form is Form.RULE and following.text:
        if form is Form.PROSE and len(block) == 1:
            return Form.HEADING, 1 if following.text[0] == "=" else 2, text
        if "|" in following.text:
            return Form.HEADING, 0, text
    return form, level, text


def _read_lines(text: str) -> Iterator[_Line]:
    code: list[str] = []
    fence, in_table = "", False
    for line in text.split("\n"):
        content = line.strip()
        if fence:
            if content.startswith(fence) and not content.strip(fence[0]):
                yield _Line(Form.CODE, "\n".join(code))
                code, fence = [], ""
            else:
                code.append(line)
        elif opening := _FENCE.match(content):
            fence, in_table = opening[1], False
        elif not content.strip("-=|: ") and len(content) != 1:
            in_table = "|" in content
            yield _Line(Form.RULE, content)
        elif content[0] == "|" or (in_table and "|" in content):
            in_table = True
            yield _Line(Form.ROW, content)
        elif heading := _HEADING.match(content):
            level = len(heading[1]) if heading[1] else int(heading[2])
            yield _Line(Form.HEADING, content[heading.end() :].rstrip("#"), level=level)
        else:
            marks = _MARKS.match(content)
            yield _Line(Form.PROSE, content[marks.end() :] if marks else content, continues=marks is None)
    if code:
        yield _Line(Form.CODE, "\n".join(code))


def _split_cells(row: str) -> list[str]:
    return [word for cell in _CELL.split(row.strip("|")) for word in ("|", *_split_words(cell))][1:]


def _split_words(block: str) -> list[str]:
    """Split text into words with their punctuation. Inline code and addresses are one word each."""
    if "![" in block:
        block = _IMAGE.sub(r" \1 ", block)
    if "](" in block:
        block = block.replace("](", "] (")  # the text of a link, and its address
    if "[^" in block:
        block = _FOOTNOTE.sub(" ", block)
    if "<" in block and "`" not in block:
        block = _TAG.sub(" ", block)
    words = [match[0] for match in _CODE_OR_WORD.finditer(block)] if "`" in block else block.split()
    if _SPACED.search(block):
        words = [part for word in words for part in _split_at_marks(word)]
    return [word[:MAX_WORD_LETTERS] for word in words]


def _split_at_marks(word: str) -> list[str]:
    if word.isalnum() and word.isascii() or is_code(word) or find_identifier(word):
        return [word]
    return _SPACED.sub(r" \1 ", word).split()


def _cut(words: list[str]) -> Iterator[list[str]]:
    return (words[start : start + _MAX_SENTENCE_WORDS] for start in range(0, len(words), _MAX_SENTENCE_WORDS))


def _is_record(block: str) -> bool:
    """Return True for a line of keys and values: "name: Ada; office: Berlin."."""
    keys = [match.start() for match in islice(_KEY.finditer(block), 2)]
    return "\n" not in block and (len(keys) > 1 or 0 in keys)


def _split_prose(words: list[str], *, is_record: bool) -> Iterator[list[str]]:
    whole = _find_short_cells(words) if is_record else frozenset()
    start = 0
    for end in range(1, len(words) + 1):
        if end == len(words) or end - start == _MAX_SENTENCE_WORDS or (end not in whole and _ends_sentence(words, end)):
            yield words[start:end]
            start = end


def _find_short_cells(words: Sequence[str]) -> frozenset[int]:
    """Return the places inside the cells of a record that are too short for sentences."""
    ends = [0, *(place for place, word in enumerate(words, start=1) if word.endswith(";")), len(words)]
    return frozenset(
        place for start, end in pairwise(ends) if end - start <= _MAX_CELL_WORDS for place in range(start + 1, end)
    )


def _ends_sentence(words: Sequence[str], end: int) -> bool:
    """Return True if a sentence ends in front of the word at this index."""
    word, following = words[end - 1], words[end].lstrip(_OPENING)
    core = word.rstrip(_CLOSING)
    if not core.endswith(_ENDING) or (following[:1].islower() and find_identifier(following) is None):
        return False
    stem = core[:-1].lstrip(_OPENING)
    is_abbreviation = word[-1] == "." and (
        (len(stem) == 1 and (end < 2 or words[end - 2].lower() not in _CLASSES))
        or stem.lower() in ABBREVIATIONS
        or ("." in stem and any(map(str.isalpha, stem)) and find_identifier(stem) is None)
    )
    if len(stem) <= 2 and stem.isdecimal() and following.rstrip(",.").lower() in CALENDAR:  # the German "am 14. März"
        return False
    return not is_abbreviation or (following.lower() in FUNCTION_WORDS and stem.lower() not in NAME_TITLES)
