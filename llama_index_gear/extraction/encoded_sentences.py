"""A sentence as kinds of words, one letter each, in which names are found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise, takewhile

from llama_index_gear.extraction.identifiers import classify_word
from llama_index_gear.extraction.inline import TASKS
from llama_index_gear.extraction.linked_names import find_linked, find_title
from llama_index_gear.extraction.sentences import Sentence
from llama_index_gear.extraction.words import ABBREVIATIONS, CALENDAR, CONNECTORS, FUNCTION_WORDS, IMPERATIVES

_PARTING = frozenset("-–—→>#•·▪◦‣●*")
"""Words that part what is said of a thing, or the entries of a menu, from what stands in front."""
_MARK_IN_FRONT = re.compile(
    r"[(<]?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z])[.)>]|\d{1,3}(?:\.\d{1,3})+|<\w[\w.-]*>"
    rf"|{TASKS}"
)
"""Matches what stands in front of a sentence: the number of an item, the state of a task, or who says a line."""
GAP = " " * 4
"""Spaces between columns that stand beside each other."""
_CLOSED = {"N": "E", "B": "X", "d": "D", "c": "-"}
"""Kinds of words, and those with punctuation behind them."""
_UNSEEN = dict.fromkeys(map(ord, "\xad\u200b\u2060\ufeff"))
"""Characters inside of words that nobody sees: soft hyphens, and places where a line may break or not."""
_HOURS = frozenset(("AM", "PM"))
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_BEFORE_STRINGS = frozenset("\"'([{")
_QUOTES = ('"', "'")
_LEAST_SHOUTED = 4
"""Words in capitals, at least, of a sentence that is written in them."""
CAPITALISED = frozenset("NBEX")
"""Kinds of words with a capital letter."""


class EncodedSentence:
    """A sentence whose words have kinds, as letters of `_NAME`, and cores without the punctuation around them."""

    def __init__(self, sentence: Sentence, bold_text: str, titles: Sequence[str], *, is_code: bool) -> None:
        """Take a sentence, the passage's text, or "" if nothing in it is bold, and titles that it may have."""
        self.quotes = _QUOTES if is_code else ('"""', "'''")
        self.words, self.form, self.level = sentence.words, sentence.form, sentence.level
        self.end = sentence.places[-1][1] if sentence.places else 0
        self.linked = list(find_linked(sentence)) if sentence.links else []
        self.linked += [(name, True) for title in titles for name in find_title(sentence.words, title)]
        seen = (word if word.isascii() else word.translate(_UNSEEN) for word in self.words)
        classified = [classify_word(word) for word in seen]
        self.kinds = [kind for kind, _ in classified]
        self.cores = [core for _, core in classified]
        for place in range(1, len(self.cores)):
            if self.cores[place] in _HOURS and self.cores[place - 1][-1:].isdecimal():
                self.kinds[place] = "-"
            elif ":" in self.cores[place] and _CLOCK.fullmatch(self.cores[place]):
                self._drop_date(place)
        self.page_starts = {name.start for name, is_page in self.linked if is_page}
        for name, is_page in self.linked:
            if is_page:
                self.kinds[name.start : name.end] = "-" * (name.end - name.start)
        self.kinds[: sentence.stamp] = "-" * sentence.stamp
        begins = (n for n, core in enumerate(self.cores) if core and n >= sentence.stamp)
        self.first = next((n for n in begins if not _MARK_IN_FRONT.fullmatch(self.words[n])), 0)
        self.bold_starts = set[int]()
        self.bold = frozenset(self._find_labels(sentence.places, bold_text) if bold_text else ())
        """Where bold text begins as the label of a button does ("select **Open folder**")."""
        for place in self.bold:
            self.kinds[place] = {"N": "B", "E": "X"}.get(self.kinds[place], self.kinds[place])

    def _find_labels(self, places: Sequence[tuple[int, int]], text: str) -> Iterator[int]:
        """Find where bold text begins with an imperative, or is a part of the sentence with a small word behind."""
        for place, (start, _) in enumerate(places):
            if text[start - 2 : start] != "**":
                continue
            self.bold_starts.add(place)
            end = text.find("**", start)
            is_part = place > self.first or end < places[-1][0]
            has_small = place + 1 < len(places) and places[place + 1][0] < end and self.cores[place + 1].islower()
            if self.cores[place].lower() in IMPERATIVES or (is_part and has_small and self.kinds[place + 1] != "c"):
                yield place

    def _drop_date(self, end: int) -> None:
        """Take the date in front of a time for none: both are a stamp of a machine ("Mon, 1 Jan 2024 12:00:00")."""
        before = range(end - 1, max(end - 5, -1), -1)
        date = list(takewhile(lambda n: self.cores[n].isdecimal() or self.cores[n].lower() in CALENDAR, before))
        if any(self.cores[place].isdecimal() for place in date):  # not "Theresa May 12:30"
            for place in date:
                self.kinds[place] = "-"

    def is_opening(self, place: int) -> bool:
        """Return True at the start of a sentence, cell or label, and behind a colon, a semicolon or a mark."""
        before = self.words[place - 1]
        if place <= self.first or place in self.bold or before[-1] in ":;|" or before in _PARTING:
            return True
        if self.ends_at(place - 1):
            return True
        if self.words[place][-1] == ":" and self.words[place][0] in "([":  # "(Default: 5)"
            return True
        if self.words[place][0] in _BEFORE_STRINGS and self.words[place].lstrip("([{").startswith(self.quotes):
            return True
        return before[0] + before[-1] == "[]" or (place == self.first + 1 and before[0] + before[-1] == "()")

    def is_marked(self, place: int) -> bool:
        """Return True where a link to a page begins, or a name in bold, but no word that is in capitals."""
        is_bold = place in self.bold_starts and self.kinds[place] in CAPITALISED and not self.cores[place].isupper()
        return is_bold or place in self.page_starts

    def ends_at(self, place: int) -> bool:
        """Return True if a sentence ends with the word at this place: in a cell or a record they stand undivided."""
        if place < 0 or self.words[place][-1] not in ".!?":
            return False
        core = self.cores[place].removesuffix(".")
        return len(core) > 1 and "." not in core and core.lower() not in ABBREVIATIONS

    def begins_at(self, place: int) -> bool:
        """Return True behind the end of a sentence, and where a cell has one: "| The AI is applied |"."""
        is_of_cell = self.words[place - 1] == "|" and "".join(self.cores[place + 2 : place + 3]).islower()
        return is_of_cell or self.ends_at(place - 1)

    def list_choices(self, place: int) -> list[str]:
        """Return the values that the label in front of this place lists: "layoff/closure: Closure Permanent"."""
        is_listed = place > 2 and self.words[place - 1][-1] == ":" and self.words[place - 2] == "/"
        return [self.cores[place - 3], self.cores[place - 1]] if is_listed else []

    def is_label(self, place: int) -> bool:
        """Return True if a colon stands behind this word and up to four small ones ("Caso real: …")."""
        words = takewhile(lambda n: n == place or self.kinds[n] not in CAPITALISED, range(place, len(self.words)))
        return any(self.words[n].rstrip("*_").endswith(":") for n in islice(words, 5))

    @cached_property
    def cores_with_gaps(self) -> list[str]:
        """The cores, with an empty one where a comma or a bracket divides a noun from what is before."""
        return [
            core if core and (word.endswith(core) or word[-1] == ".") else ""
            for word, core in zip(self.words, self.cores, strict=True)
        ]

    @cached_property
    def is_shouted(self) -> bool:
        """True if a third of the words or more are in capitals, and no other begins with one: they are no evidence."""
        large = [core for kind, core in zip(self.kinds, self.cores, strict=True) if kind in CAPITALISED]
        small = sum(map(str.islower, self.cores))
        return len(large) >= max(_LEAST_SHOUTED, small / 2) and all(map(str.isupper, large))

    @property
    def is_title_case(self) -> bool:
        """True if all words that mean something have a capital letter: that of the first is no evidence, then."""
        return not any(
            core.isalpha() and core.islower() and core not in FUNCTION_WORDS and core not in CONNECTORS
            for core in self.cores
        )


def divide_at_gaps(text: str, sentence: EncodedSentence, places: Sequence[tuple[int, int]]) -> None:
    """Let a gap inside a line divide names: columns stand beside each other there, or the ends of a running head."""
    for number, (left, right) in enumerate(pairwise(places)):
        between = text[left[1] : right[0]]
        if between.startswith(GAP) and between.isspace() and "\n" not in between:
            sentence.kinds[number] = _CLOSED.get(sentence.kinds[number], sentence.kinds[number])


def divide_at(sentence: EncodedSentence, dividers: Collection[str]) -> None:
    """Let small words divide names that they would join elsewhere ("a Torino da Giovanni Agnelli")."""
    for place, core in enumerate(sentence.cores):
        if core in dividers:
            sentence.kinds[place] = "-"
