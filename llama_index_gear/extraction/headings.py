"""Finds the subject of each section of a passage: its heading, where that names something."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_index_gear.extraction.german import is_common_noun
from llama_index_gear.extraction.sentences import Form, Sentence
from llama_index_gear.extraction.words import (
    CALENDAR,
    COMMON_WORDS,
    CONNECTORS,
    DEMONYMS,
    FUNCTION_WORDS,
    HEADING_WORDS,
    OFFICE_WORDS,
    OPENERS,
    OTHER_LANGUAGES,
)
from llama_index_gear.triple import drop_parenthesis

_MAX_WORDS = 12  # a longer heading is a sentence
_MARKS = "*_`~"
_NUMBERING = re.compile(r"(?:\d{1,3}|[A-Z])(?:\.\d{1,3})*[.)]?")
_AMOUNT = re.compile(r"-?[$€£]\d[\d.,]*")
_CORE = re.compile(r"\w(?:.*\w)?")
_SMALL = FUNCTION_WORDS | CONNECTORS | OTHER_LANGUAGES
_GENERIC = _SMALL | OPENERS | COMMON_WORDS | DEMONYMS | CALENDAR | HEADING_WORDS | OFFICE_WORDS
_GENERIC_ENDING = re.compile(
    "[a-z]{2,}(?:tion|ment|ing|ance|ence|ity|ology|ography|ness|ship|sion|ure|age|ics|ism|ist|ary|ory|ity|al|ed)(?:e?s)?"
    "|[a-z]+ies|[a-zäöü]*(?:verzeichnis|quellen)|(?:vor|nach)wort"
)
"""Matches English nouns and adjectives that head sections, by their ending."""


class Sections:
    """The open sections of a passage while it is read: which of their headings is the subject.

    Args:
        title: what the passage is about; "" if nobody knows.
        path: the headings that the passage stands under, outermost first.
        has_case_evidence: True if a capital letter inside a heading says that a word is a name: not in German, where
            every noun has one.

    """

    def __init__(self, title: str, path: Sequence[str], *, has_case_evidence: bool = True) -> None:
        self._has_case_evidence = has_case_evidence
        self._subject = title
        self._open: list[tuple[int, str]] = []
        for place, heading in enumerate(path):
            topic = self._read_topic(Sentence(heading.split(), Form.HEADING, place + 1), is_named=False)
            self._subject = topic or self._subject

    @property
    def subject(self) -> str:
        """The innermost heading that names something, else the title."""
        return next((topic for _, topic in reversed(self._open) if topic), self._subject)

    def close(self, level: int) -> None:
        """End the sections that a heading of this level ends: those of the same and of deeper levels; 0 ends none."""
        while level and self._open and self._open[-1][0] >= level:
            self._open.pop()

    def open(self, sentence: Sentence, *, is_named: bool) -> None:
        """Open a section if the sentence is its heading.

        Args:
            sentence: a sentence of the passage.
            is_named: True if a name was found in it.

        """
        if sentence.level:
            self._open.append((sentence.level, self._read_topic(sentence, is_named)))

    def _read_topic(self, heading: Sentence, is_named: bool) -> str:
        """Return what a heading names, as a title is written; "" if its words are common ("Getting Started")."""
        words = [word for word in (word.strip(_MARKS) for word in heading.words) if word and word[:5] != "(http"]
        if len(words) > 1 and _NUMBERING.fullmatch(words[0]):
            words = words[1:]
        is_cut = bool(words) and words[0][0].islower() and words[-1][-1] in ".;,"  # a piece of a sentence
        if not words or is_cut or _AMOUNT.fullmatch(words[-1]) or len(words) > _MAX_WORDS:
            return ""
        if not is_named and not self._is_name(words, heading.level):
            return ""
        topic = drop_parenthesis(" ".join(words).strip("[]#: "))
        return topic if any(map(str.isalpha, topic)) else ""  # of "[1.2.0] - 2024-05-01" the date is left

    def _is_name(self, words: Sequence[str], level: int) -> bool:
        cores = [match[0] for match in map(_CORE.search, words) if match]
        known = [core for core in cores if not _is_generic(core, is_german=not self._has_case_evidence)]
        if not known:
            return False
        if level == 1:
            return True
        is_title_case = all(not core[0].islower() or core in _SMALL for core in cores)
        return self._has_case_evidence and is_title_case and len(cores) > 1 and any(core[0].isupper() for core in known)


def _is_generic(core: str, *, is_german: bool) -> bool:
    word = core.lower().removesuffix("'s")
    is_known = not _GENERIC.isdisjoint((word, word.removesuffix("s"))) or (is_german and is_common_noun(core))
    return is_known or word.isdecimal() or _GENERIC_ENDING.fullmatch(word) is not None
