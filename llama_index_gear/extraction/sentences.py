"""Sentences of a passage, as people write it: plain text or Markdown, with code left whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from llama_index_gear.extraction.identifiers import MAX_WORD_LETTERS, find_identifier, is_code
from llama_index_gear.extraction.words import ABBREVIATIONS, CALENDAR, FUNCTION_WORDS

_MAX_SENTENCE_WORDS = 200  # a longer sentence is cut

_OPENING = "\"'“‘«([{*_"
_CLOSING = "\"'”’»)]}*_"
_ENDING = tuple(".!?…。！？।؟")

_SPACED = re.compile("([–—/])|(?<=[。！？])")
"""Word boundaries without a space."""
_FOOTNOTE = re.compile(r"\[\^[\w-]{1,40}\]:?")
_TAG = re.compile(
    r"</?(?:a|b|br|center|code|details|div|em|h[1-6]|hr|i|img|kbd|li|ol|p|pre|small|span|strong|sub|summary|sup|table|td"
    r"|th|tr|u|ul)(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_CODE_OR_WORD = re.compile(r"[(\[{\"'“‘«*_~]*(`{1,3})(?![`\s])(?:(?!''|`).){1,160}(?<!\s)\1(?!`)[^\w\s`]*|\S+")
"""Matches inline code with the punctuation around it, or a word."""
_HEADING = re.compile(r"#{1,6}(?:[ \t]+|$)")
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
    """A sentence, heading, row of a table or block of code: its words, with their punctuation."""

    words: list[str]
    form: Form


def split_sentences(text: str) -> Iterator[Sentence]:
    """Split a passage into sentences. A blank line ends a sentence, too; a block of code is one sentence."""
    for form, block in _split_blocks(text):
        if form is Form.PROSE:
            parts = _split_prose(_split_words(block))
        elif form is Form.CODE:
            parts = iter([[word[:MAX_WORD_LETTERS] for word in block.split()]])
        else:
            parts = _cut(_split_cells(block) if "|" in block else _split_words(block))
        yield from (Sentence(words, form) for words in parts if words)


def _split_blocks(text: str) -> Iterator[tuple[Form, str]]:
    if "\n" not in text and text[:1] not in "#>-*+•|`~":
        yield Form.PROSE, text
        return
    lines: list[str] = []
    before = Form.RULE
    for form, continues, line in _read_lines(text):
        if lines and not (form is before is Form.PROSE and continues):
            is_head = form is Form.RULE and line and (before is Form.PROSE or "|" in line)
            yield Form.HEADING if is_head else before, "\n".join(lines)
            lines = []
        if form is not Form.RULE:
            lines.append(line)
        before = form
    if lines:
        yield before, "\n".join(lines)


def _read_lines(text: str) -> Iterator[tuple[Form, bool, str]]:
    """Read the lines of Markdown: their forms, whether they may go on with the line before, and their contents."""
    code: list[str] = []
    fence, in_table = "", False
    for line in text.split("\n"):
        content = line.strip()
        if fence:
            if content.startswith(fence) and not content.strip(fence[0]):
                yield Form.CODE, False, "\n".join(code)
                code, fence = [], ""
            else:
                code.append(line)
        elif opening := _FENCE.match(content):
            fence, in_table = opening[1], False
        elif not content.strip("-=|: ") and len(content) != 1:
            in_table = "|" in content
            yield Form.RULE, False, content
        elif content[0] == "|" or (in_table and "|" in content):
            in_table = True
            yield Form.ROW, False, content
        elif heading := _HEADING.match(content):
            yield Form.HEADING, False, content[heading.end() :].rstrip("#")
        else:
            marks = _MARKS.match(content)
            yield Form.PROSE, marks is None, content[marks.end() :] if marks else content
    if code:
        yield Form.CODE, False, "\n".join(code)


def _split_cells(row: str) -> list[str]:
    return [word for cell in _CELL.split(row.strip("|")) for word in ("|", *_split_words(cell))][1:]


def _split_words(block: str) -> list[str]:
    """Split text into words with their punctuation. Inline code and addresses are one word each."""
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


def _split_prose(words: list[str]) -> Iterator[list[str]]:
    start = 0
    for end, word in enumerate(words, 1):
        if end == len(words) or end - start == _MAX_SENTENCE_WORDS or _ends_sentence(word, words[end]):
            yield words[start:end]
            start = end


def _ends_sentence(word: str, following: str) -> bool:
    core = word.rstrip(_CLOSING)
    following = following.lstrip(_OPENING)
    if not core.endswith(_ENDING) or (following[:1].islower() and find_identifier(following) is None):
        return False
    stem = core[:-1].lstrip(_OPENING)
    is_abbreviation = word[-1] == "." and (
        len(stem) == 1 or stem.lower() in ABBREVIATIONS or ("." in stem and find_identifier(stem) is None)
    )
    if len(stem) <= 2 and stem.isdecimal() and following.rstrip(",.").lower() in CALENDAR:  # the German "am 14. März"
        return False
    return not is_abbreviation or following.lower() in FUNCTION_WORDS
