"""Sentences of a passage, from its blocks: as people write them, with code left whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from typing import NamedTuple

from llama_index_gear.extraction.blocks import Block, Kind, read_blocks
from llama_index_gear.extraction.identifiers import MAX_WORD_LETTERS, find_identifier, is_code
from llama_index_gear.extraction.inline import GAP, Link
from llama_index_gear.extraction.languages import BORDER, is_caseless
from llama_index_gear.extraction.words import ABBREVIATIONS, CALENDAR, FUNCTION_WORDS, NAME_TITLES

_MAX_SENTENCE_WORDS = 200  # a longer sentence is cut

_OPENING = "\"'“‘«([{*_"
_CLOSING = "\"'”’»)]}*_"
_ENDING = tuple(".!?…。！？।؟")
_LAST = frozenset((*_ENDING, *_CLOSING))
"""The last characters of words that may end a sentence."""

_SPACED = re.compile(r"[–—]|(?<=[^\W\d_]{3})/(?=[^\W\d_]{3})|(?<=[。！？])")
"""Word boundaries without a space; no stroke of "CI/CD" or "km/h"."""
_BEFORE_SENTENCES = "-+*•#>|[](){}_`~0123456789. \t\r"
"""Marks that belong to the sentence behind them."""
_LABEL = re.compile(r"\[?\d{1,2}:\d\d(?::\d\d)?\]?[ \t]|<?[^\W\d_a-z][\w .-]{0,30}>?:[ \t]")
"""Matches the start of a line that begins something new: a time, or a name or key with a colon behind it."""
_MONTH = "(?:Jan|Feb|Mar|Mär|Apr|May|Mai|Jun|Jul|Aug|Sep|Oct|Okt|Nov|Dec|Dez)[a-z]{0,6}"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
_STAMP = re.compile(
    rf"\s*(?:\[?{_LEVEL}\]?:?\s+)?"
    r"[\[(<]?(?:\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:[T,_ ]{0,2}\d{1,2}[:.h]\d\d[\d:.,]*)?|\d{1,2}[:.h]\d\d[\d:.,]*"
    rf"|{_MONTH}\.? {{1,2}}\d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\d{{1,2}}\.?[ /-]{_MONTH}\.?[ ,/-]{{1,2}}\d{{4}}"
    rf"|(?:[A-Z][a-z]{{2}},? )?(?:{_MONTH} {{1,2}}\d{{1,2}}|\d{{1,2}}[ /-]{_MONTH})[ ,:/\d-]*\d\d:\d\d[\d:.]*"
    r"|(?:\d{1,3}\.){3}\d{1,3}|\d{9,13}(?:\.\d+)?|(?=[a-f]*\d)[0-9a-f]{7,40})(?=[\s:\]),>Z+-])"
    rf"\S*(?:\s+[\[(]?{_LEVEL}\S*)?"
)
"""Matches the date, time or number that begins a line of a log, a journal or a chat, and the level behind it."""
_KEY = re.compile(r"(?:^|; )(?=[^\n:;]*[^\W\d_])[^\s:;@/A-Z]{1,40}(?: [^\s:;@/A-Z]{1,40}){0,5}: ")
"""Matches a key in small letters with a colon behind it, at the start of a line or behind a semicolon."""
_MAX_CELL_WORDS = 12
"""Words that a cell has at most, if a full stop in it ends no sentence ("office: St. Gallen; boss: Dr. No.")."""
_LEAST_WIDTH = 40
_LEAST_CAPITALISED = 4
"""Lines that each begin with a capital letter, at least, if they are not those of a paragraph that is wrapped."""
_ROOM = 0.75
"""Share of a paragraph's width: a line that would be shorter with the next line's first word was ended on purpose."""
_CLASSES = frozenset(
    "annex appendix article chapter class clause column exhibit figure form grade group hepatitis item level"
    " line option page part phase plan point room rule schedule section stage step table type unit vitamin".split()
)
"""Words in front of a letter that is no initial ("Exhibit A.")."""
_CODE_OR_WORD = re.compile(r"[(\[{\"'“‘«*_~\0]*(`{1,3})(?![`\s])(?:(?!''|`).){1,160}(?<!\s)\1(?!`)[^\w\s`]*|\S+")
"""Matches inline code with the punctuation around it, or a word."""
_WORD = re.compile(r"\S+")
_CELL_WORD = re.compile(r"\||[^\s|]+")


class Form(Enum):
    """The place of a sentence in its passage."""

    PROSE = "prose"
    HEADING = "heading"
    ROW = "row"
    CODE = "code"


_FORMS = {
    Kind.PARAGRAPH: Form.PROSE,
    Kind.ITEM: Form.PROSE,
    Kind.HEADING: Form.HEADING,
    Kind.HEAD: Form.HEADING,
    Kind.ROW: Form.ROW,
    Kind.CODE: Form.CODE,
}


class _Word(NamedTuple):
    """A word with its punctuation, and its place in the passage."""

    text: str
    start: int
    end: int


class Sentence(NamedTuple):
    """A sentence, heading, row of a table or block of code.

    Attributes:
        words: its words, with their punctuation, without markup.
        form: its place in the passage.
        level: the level of a heading, from 1; 0 for everything else.
        places: where each word starts and ends in the passage.
        links: the links of its block, by their places in the passage.
        stamp: how many of the words, in front, are a date, time or number that lines begin with.

    """

    words: list[str]
    form: Form
    level: int = 0
    places: Sequence[tuple[int, int]] = ()
    links: Sequence[Link] = ()
    stamp: int = 0

    @property
    def start(self) -> int:
        """The place in the passage where it starts."""
        return self.places[0][0]

    def join(self, first: int, last: int) -> str:
        """Return words as the passage writes them, without the spaces that stand for no space there."""
        parts = [self.words[first]]
        for place in range(first + 1, min(last, len(self.words))):
            is_apart = not self.places or self.places[place - 1][1] < self.places[place][0]
            parts.append(f" {self.words[place]}" if is_apart else self.words[place])
        return "".join(parts)

    def window(self, start: int, end: int, most: int) -> str:
        """Return up to `most` of its words, around those from `start` to `end`."""
        first = max(0, min((start + end - most + 1) // 2, len(self.words) - most))
        return self.join(first, first + most)


def split_sentences(text: str, *, is_markdown: bool | None = None) -> Iterator[Sentence]:
    """Split a passage into sentences. A block ends a sentence, too; a block of code is one sentence.

    Args:
        text: the passage.
        is_markdown: True if it is known to be Markdown, False if code; None if its own lines have to tell.

    """
    marks = re.compile(f"{_SPACED.pattern}|{BORDER.pattern}") if is_caseless(text) else _SPACED
    for block in read_blocks(text, is_markdown=is_markdown):
        form = _FORMS[block.kind]
        for words, stamp_end in _split_block(block, form, marks):
            if words:
                places = [(word.start, word.end) for word in words]
                stamp = sum(word.start < stamp_end for word in words) if stamp_end else 0
                yield Sentence([word.text for word in words], form, block.level, places, block.links, stamp)


def split_pieces(text: str) -> list[str]:
    """Cut a text in front of its sentences, items, rows and blocks; the pieces together are the text.

    It is a `chunking_tokenizer_fn` of LlamaIndex's `SentenceSplitter`.
    """
    cuts = [0]
    for sentence in split_sentences(text):
        line = max(text.rfind("\n", cuts[-1], sentence.start) + 1, cuts[-1])
        if sentence.form is Form.CODE:  # with its fence
            line = max(text.rfind("\n", cuts[-1], max(line - 1, 0)) + 1, cuts[-1])
        is_first = sentence.form is Form.CODE or not text[line : sentence.start].strip(_BEFORE_SENTENCES)
        cuts.append(max(line if is_first else sentence.start, cuts[-1]))
    return [text[start:end] for start, end in pairwise([*cuts, len(text)]) if start < end]


def _split_block(block: Block, form: Form, marks: re.Pattern[str]) -> Iterator[tuple[list[_Word], int]]:
    """Split a block into sentences; yield the words of each, and where the stamp ends that its line begins with."""
    if form is Form.PROSE:
        for part, start, stamp_end in _join_lines(block):
            words = _find_words(part, start, marks)
            yield from ((sentence, stamp_end) for sentence in _split_prose(words, is_record=_is_record(part)))
    elif form is Form.CODE:
        words = [
            _Word(match[0][:MAX_WORD_LETTERS], block.start + match.start(), block.start + match.end())
            for match in _WORD.finditer(block.plain)
        ]
        yield words, 0
    else:
        yield from (
            (part, 0) for part in _cut(_find_words(block.plain, block.start, marks, has_cells="|" in block.plain))
        )


def _join_lines(block: Block) -> Iterator[tuple[str, int, int]]:
    """Join the lines of a block that go on with the line before, as in text that is wrapped.

    Yields:
        The joined lines, where they start in the passage, and where a stamp ends that they and others begin with.

    """
    if "\n" not in block.plain:
        yield block.plain, block.start, 0
        return
    lines = block.plain.split("\n")
    stamps = [_read_stamp(line) for line in lines]
    forms = Counter(form for form, _ in stamps)
    is_wrapped = len(lines) < _LEAST_CAPITALISED or not all(line.lstrip()[:1].isupper() for line in lines)
    joined: list[str] = []
    lengths: list[int] = []
    start = place = block.start
    stamp_end = 0
    for line, (form, length) in zip(lines, stamps, strict=True):
        begins = bool(form) and forms[form] > 1
        if joined and (begins or not (is_wrapped and _goes_on(lengths, line))):
            yield "\n".join(joined), start, stamp_end
            joined, lengths = [], []
        if not joined:
            start, stamp_end = place, place + length if begins else 0
        joined.append(line)
        lengths.append(len(line.strip()))
        place += len(line) + 1
    yield "\n".join(joined), start, stamp_end


def _read_stamp(line: str) -> tuple[str, int]:
    """Return the form of the date, time or number that a line begins with, and where it ends; "" without one."""
    match = _STAMP.match(line) if any(map(str.isdecimal, line[:20])) else None
    if match is None:
        return "", 0
    return "#" if match[0].split()[0].isalnum() else re.sub(r"\d+|[A-Za-z]+", "0", match[0].split()[0]), match.end()


def _goes_on(lengths: Sequence[int], following: str) -> bool:
    """Return True if a line of prose goes on with the lines in front of it, of these lengths."""
    content = following.strip()
    if not content or not lengths[-1] or _LABEL.match(content):
        return not content
    width = max(_LEAST_WIDTH, len(content), *lengths[-20:])
    first = content.split(maxsplit=1)[0]
    return first[:1].islower() or lengths[-1] + 1 + len(first) > _ROOM * width


def _find_words(plain: str, start: int, marks: re.Pattern[str], *, has_cells: bool = False) -> list[_Word]:
    """Find the words of a piece of plain text, with their punctuation. Inline code and addresses are one word each."""
    pattern = _CELL_WORD if has_cells else _CODE_OR_WORD if "`" in plain else _WORD
    words = [
        _Word(match[0][:MAX_WORD_LETTERS], start + match.start(), start + match.end())
        for match in pattern.finditer(plain)
    ]
    if GAP in plain:
        words = [_close_gaps(word) if GAP in word.text else word for word in words if word.text.strip(GAP)]
    if ("/" in plain or not plain.isascii()) and marks.search(plain):
        words = [part for word in words for part in _split_at_marks(word, marks)]
    return words


def _close_gaps(word: _Word) -> _Word:
    start = word.start + len(word.text) - len(word.text.lstrip(GAP))
    end = word.end - len(word.text) + len(word.text.rstrip(GAP))
    return _Word(word.text.replace(GAP, ""), start, end)


def _split_at_marks(word: _Word, marks: re.Pattern[str]) -> Iterator[_Word]:
    text, place, end = word
    is_word = text.isascii() and (text.isalnum() or text.startswith("#"))  # a tag of notes
    is_whole = is_word or end - place != len(text) or is_code(text) or find_identifier(text)
    matches = [] if is_whole else [match.span() for match in marks.finditer(text)]
    if not matches:
        yield word
        return
    for first, last in pairwise([0, *(border for span in matches for border in span), len(text)]):
        if first < last:
            yield _Word(text[first:last], place + first, place + last)


def _cut(words: list[_Word]) -> Iterator[list[_Word]]:
    return (words[start : start + _MAX_SENTENCE_WORDS] for start in range(0, len(words), _MAX_SENTENCE_WORDS))


def _is_record(block: str) -> bool:
    """Return True for a line of keys and values: "name: Ada; office: Berlin."."""
    keys = [match.start() for match in islice(_KEY.finditer(block), 2)]
    return "\n" not in block.strip() and (len(keys) > 1 or 0 in keys)


def _split_prose(words: list[_Word], *, is_record: bool) -> Iterator[list[_Word]]:
    texts = [word.text for word in words]
    whole = _find_short_cells(texts) if is_record else frozenset()
    start = 0
    for end in range(1, len(words) + 1):
        may_end = texts[end - 1][-1] in _LAST and end not in whole
        if end == len(words) or end - start == _MAX_SENTENCE_WORDS or (may_end and _ends_sentence(texts, end)):
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
